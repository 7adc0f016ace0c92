"""A folder of files that is there whole or not at all."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from acme_quant.export.source import ExportError


def check(out: pathlib.Path) -> None:
    """Checks that `write` can make a folder.

    Raises:
      ExportError: there are files in it, or its place cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ExportError(f"expected --out of a new or empty folder, got {out}.")
    place = out.absolute().parent
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ExportError(f"expected a writable folder for --out={out}, got {place}.")


def write(out: pathlib.Path, files: dict[str, bytes]) -> None:
    """Makes a folder of files: first beside its place, then renamed.

    Raises:
      ExportError: it cannot be written; nothing is left of it.
    """
    check(out)
    out = out.absolute()
    temporary = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent)
        for name, content in files.items():
            pathlib.Path(temporary, name).write_bytes(content)
        os.chmod(temporary, 0o755)
        os.replace(temporary, out)
    except OSError as error:
        raise ExportError(
            f"expected to write --out={out}, got: {error.strerror}."
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
