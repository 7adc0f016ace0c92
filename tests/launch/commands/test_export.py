"""`acme-quant export`: what it writes, and what it refuses in one sentence."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
from small_policies import flat, policy

from acme_quant.export import ExportError, c, folder
from acme_quant.launch.commands import export
from acme_quant.policy import payload


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> pathlib.Path:
    policy().save(tmp_path / "net.aq")
    return tmp_path / "net.aq"


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """Returns the one sentence with which a request is refused."""
    assert export.main(["acme-quant export", *map(str, flags)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    "form,files",
    [
        ("c", {"walker.c", "walker.h", "walker_test.c", "README.md"}),
        ("onnx", {"walker.onnx", "walker.parity.json"}),
        ("npz", {"walker.npz"}),
    ],
)
def test_a_saved_policy_is_exported_whole(
    saved: pathlib.Path, form: str, files: set, capsys: pytest.CaptureFixture[str]
) -> None:
    out, rows = saved.parent / "deep" / "out", saved.parent / "rows.npy"
    np.save(rows, flat(3))
    flags = [f"--policy={saved}", f"--format={form}", f"--out={out}", "--name=walker"]
    assert export.main(["acme-quant export", *flags, f"--observations={rows}"]) == 0
    assert {path.name for path in out.iterdir()} == files
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert "walker" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag,expected",
    [
        ("--name=3x", "C identifier"),
        ("--name=while", "C identifier"),
        ("--name=a-b", "a-b"),
        ("--name=", "C identifier"),
        ("--format=tflite", "tflite"),
        ("--workdir=/", "either"),
        ("--quantizer=int4", "change nothing"),
        ("--activations=8bit", "change nothing"),
        ("--checkpoint=1", "change nothing"),
        ("--policy=/nowhere", "No such file"),
        ("--observations=/nowhere", "No such file"),
        ("--out=", "--out"),
        ("--out=/proc/1/out", "writable"),
        ("left_over", "left_over"),
        ("--nonsense=1", "nonsense"),
    ],
)
def test_bad_request_is_refused_in_one_sentence(
    saved: pathlib.Path, flag: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = saved.parent / "out"
    said = refused(capsys, f"--policy={saved}", f"--out={out}", "--format=npz", flag)
    assert expected in said
    assert sorted(path.name for path in saved.parent.iterdir()) == ["net.aq"]


def test_a_payload_of_a_newer_format_is_refused(
    saved: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(saved.read_bytes())
    content[8] = payload.FORMAT_VERSION + 1
    saved.write_bytes(content)
    said = refused(capsys, f"--policy={saved}", f"--out={saved.parent / 'out'}")
    assert f"got format {payload.FORMAT_VERSION + 1}" in said


@pytest.mark.parametrize("rows", [np.ones((3, 4), np.float32), np.ones((3, 5))])
def test_observations_of_another_kind_are_refused(
    saved: pathlib.Path, rows: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(saved.parent / "rows.npy", rows)
    flags = (f"--policy={saved}", f"--out={saved.parent / 'out'}")
    said = refused(capsys, *flags, f"--observations={saved.parent / 'rows.npy'}")
    assert "expected --observations of float32 [M, 5]" in said


def test_a_folder_with_files_is_left_alone(
    saved: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, f"--policy={saved}", f"--out={saved.parent}")
    assert "new or empty folder" in said
    assert os.listdir(saved.parent) == ["net.aq"]


def test_a_kind_without_an_emitter_leaves_nothing_behind(
    saved: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(c.KINDS, "layer_norm")
    said = refused(capsys, f"--policy={saved}", f"--out={saved.parent / 'out'}")
    assert "layer_norm" in said
    assert os.listdir(saved.parent) == ["net.aq"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    files = {"good.c": b"x", "no/such/folder.c": b"y"}
    with pytest.raises(ExportError, match="expected to write"):
        folder.write(tmp_path / "out", files)
    assert not list(tmp_path.iterdir())
