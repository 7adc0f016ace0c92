"""Installations that cannot load the stack: the doctor names cause and cure."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig
from typing import Callable

import pytest

Seen = Callable[[str], None]
DOCTOR = (
    "import sys; from acme_quant.launch.commands import doctor; "
    "sys.exit(doctor.main(['']))"
)


@pytest.fixture
def static_python(tmp_path: pathlib.Path) -> pathlib.Path:
    """Returns an interpreter that is linked to no libpython, with our packages."""
    config = pathlib.Path(sysconfig.get_config_var("LIBPL"))
    archive, main = config / "libpython3.10.a", config / "python.o"
    if not (archive.exists() and main.exists()):
        pytest.skip(f"expected {archive} to link an interpreter with, got none")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python"
    whole = ["-Wl,--whole-archive", str(archive), "-Wl,--no-whole-archive"]
    libraries = ["-lpthread", "-ldl", "-lutil", "-lm", "-Wl,-export-dynamic"]
    subprocess.run(["cc", "-o", python, main, *whole, *libraries], check=True)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    library = tmp_path / "lib/python3.10"
    library.mkdir(parents=True)
    (library / "site-packages").symlink_to(sysconfig.get_path("purelib"))
    return python


def diagnose(python: pathlib.Path, **env: str) -> tuple[int, str]:
    """Returns exit code and findings of the doctor in this interpreter."""
    done = subprocess.run(
        [str(python), "-c", DOCTOR],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout


def test_a_missing_libpython_is_found_and_its_cure_cures(
    static_python: pathlib.Path, seen: Seen
) -> None:
    code, findings = diagnose(static_python, LD_LIBRARY_PATH="")
    assert code == 1
    assert "FAULT libpython     libpython3.10.so.1.0 is not on" in findings
    folder = findings.split("mend it: export LD_LIBRARY_PATH=")[1].split(":")[0]
    code, findings = diagnose(static_python, LD_LIBRARY_PATH=folder)
    assert code == 0, findings
    seen(f"named, with `export LD_LIBRARY_PATH={folder}`; healthy after it")
