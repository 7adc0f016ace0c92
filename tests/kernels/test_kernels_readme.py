"""The engine's README names its files."""

from __future__ import annotations

import pathlib
import re

from acme_quant import kernels


def test_the_readme_names_every_file_in_reading_order() -> None:
    folder = pathlib.Path(kernels.__file__).parent
    named = set(re.findall(r"`(\w+\.(?:c|h|py))`", (folder / "README.md").read_text()))
    assert named == {
        p.name for p in folder.iterdir() if p.suffix in (".c", ".h", ".py")
    }
