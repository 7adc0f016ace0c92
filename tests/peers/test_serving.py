"""What is on the wire is what is listed."""

from __future__ import annotations

import courier
import pytest

from acme_quant.peers import serving


class Instance:
    """Has one method for peers, and one that came later."""

    def get(self) -> int:
        return 3

    def run(self) -> None:
        raise AssertionError("nobody calls this")


def test_a_method_that_is_not_listed_is_not_on_the_wire() -> None:
    server = serving.serve(Instance(), ("get",))
    client = courier.Client(server.address, call_timeout=5)
    try:
        assert courier.list_methods(client) == ["get"]
        assert client.get() == 3
    finally:
        server.Stop()
        server.Join()


def test_a_listed_method_that_is_missing_is_refused_before_the_server_starts() -> None:
    with pytest.raises(AttributeError, match="put"):
        serving.serve(Instance(), ("get", "put"))
