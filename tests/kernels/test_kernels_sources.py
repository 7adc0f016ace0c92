"""Sources that are met without compiled kernels say so."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import acme_quant


def test_sources_without_kernels_are_named_in_one_sentence(
    tmp_path: pathlib.Path,
) -> None:
    source = pathlib.Path(acme_quant.__file__).parent
    ignored = shutil.ignore_patterns("_kernels*", "__pycache__")
    shutil.copytree(source, tmp_path / "acme_quant", ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-c", "import acme_quant; acme_quant.QuantizedPolicy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "expected the compiled kernels" in last and "pip install -e ." in last
    assert "circular" not in last
