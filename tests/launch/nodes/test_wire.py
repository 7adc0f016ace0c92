"""Every node of a real run is asked what it serves."""

from __future__ import annotations

import os
import pathlib
import time

import courier
import psutil
import whole_run

from acme_quant.launch import nodes


def servers(workdir: pathlib.Path) -> dict[str, int]:
    """Returns {node: TCP port} of the nodes of a run that listen by now."""
    found = {}
    for pid in whole_run.processes_of(workdir):
        name = pathlib.Path(os.readlink(f"/proc/{pid}/fd/1")).stem
        for connection in psutil.Process(pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                found[name] = connection.laddr.port
    return found


def test_a_run_serves_what_is_listed_and_nothing_else(tmp_path: pathlib.Path) -> None:
    process = whole_run.start(tmp_path, *whole_run.SMALL, "--env=gym:Pendulum-v1")
    try:
        expected = {node.name: sorted(node.serves) for node in nodes.NODES}
        del expected["actor"], expected["replay"]  # Reverb serves what Reverb does.
        expected |= {"actor_0": [], "actor_1": []}
        deadline = time.monotonic() + 120
        while not (ports := servers(tmp_path)).keys() >= expected.keys():
            assert time.monotonic() < deadline and process.poll() is None, ports
            time.sleep(0.5)
        served = {
            name: sorted(
                courier.list_methods(
                    courier.Client(f"localhost:{ports[name]}", call_timeout=20)
                )
            )
            for name in expected
        }
        assert served == expected
    finally:
        process.terminate()
        whole_run.finish(process)
