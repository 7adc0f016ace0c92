"""A replay checkpoint comes back, or its damage is said and the replay fills anew."""

from __future__ import annotations

import pathlib

import numpy as np
import portpicker
import pytest
import reverb

from acme_quant.launch.checkpoints import replay_saver


def make_tables() -> list[reverb.Table]:
    return [
        reverb.Table(
            "rows",
            reverb.selectors.Uniform(),
            reverb.selectors.Fifo(),
            1000,
            reverb.rate_limiters.MinSize(1),
        )
    ]


def serve(folder: pathlib.Path) -> tuple[reverb.Server, reverb.Client]:
    port = portpicker.pick_unused_port()
    server = replay_saver.serve(make_tables, port, folder)
    return server, reverb.Client(f"localhost:{port}")


def save(folder: pathlib.Path, items: int) -> pathlib.Path:
    """Saves a replay of so many items; returns the checkpoint's folder."""
    server, client = serve(folder)
    for item in range(items):
        client.insert([np.float32(item)], {"rows": 1.0})
    path = pathlib.Path(client.checkpoint())
    server.stop()
    return path


def test_the_number_said_is_what_was_loaded(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "replay", 20)
    assert "replay fills anew" in capsys.readouterr().out
    server, client = serve(tmp_path / "replay")
    assert "replay came back with 20 items" in capsys.readouterr().out
    assert client.server_info()["rows"].current_size == 20
    server.stop()


@pytest.mark.parametrize("name", ["chunks.tfrecord", "tables.tfrecord"])
def test_a_damaged_replay_is_said_and_fills_anew(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = save(tmp_path / "replay", 20)
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[: len(content) // 2])
    for damaged in (True, False):
        server, client = serve(tmp_path / "replay")
        assert client.server_info()["rows"].current_size == 0
        server.stop()
        assert ("is damaged" in capsys.readouterr().out) is damaged
    assert (tmp_path / "replay-damaged" / path.name / name).exists()
