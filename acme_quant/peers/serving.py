"""Courier servers that serve a list of methods, and nothing else.

Launchpad binds every public method of an object; what is not listed here is not on the
wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acme_quant.peers import loopback

if TYPE_CHECKING:
    import courier


def serve(
    instance: object, methods: Sequence[str], port: int | None = None
) -> courier.Server:
    """Starts a server of these methods of `instance` that this host alone can reach.

    Args:
      instance: the object whose methods are called, each in a thread of the server.
      methods: names of the methods; no other can be called.
      port: TCP port to listen on; None for any.

    Returns:
      The server; it lives as long as somebody holds it.

    Raises:
      AttributeError: if the object lacks one of the methods.
    """
    import courier

    server = courier.Server(port=port)
    for method in methods:
        server.Bind(method, getattr(instance, method))
    loopback.start(server)
    return server
