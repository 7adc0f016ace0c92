"""The one command that mends a fault of the installation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import re
import shlex
import sys
import sysconfig

DISTRIBUTION = "acme-quant"
TENSORFLOW = ("tensorflow", "protobuf", "numpy")
_BAD_ENVIRONMENT = r"unknown environment|cannot be made|U\w+Environment"
_COUNT = (DISTRIBUTION, "dm-acme", "dm-reverb", "dm-launchpad", "tensorflow", "numpy")

# Modules whose distribution has another name.
_DISTRIBUTIONS = {
    "acme": "dm-acme",
    "courier": "dm-launchpad",
    "dm_control": "dm-control",
    "dm_env": "dm-env",
    "launchpad": "dm-launchpad",
    "reverb": "dm-reverb",
    "sonnet": "dm-sonnet",
    "tree": "dm-tree",
    "absl": "absl-py",
    "ale_py": "ale-py",
}


def pins() -> dict[str, str]:
    """Returns name -> version of the training stack, empty when not installed."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def installed(name: str) -> str | None:
    """Returns the installed version of a distribution, None without one."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions() -> str:
    """Returns the packages that a run's numbers depend on, with their versions."""
    return ", ".join(f"{name} {installed(name) or 'none'}" for name in _COUNT)


def install(*names: str) -> str:
    """Returns the command that installs these distributions as pinned."""
    known = pins()
    wanted = [f"{name}=={known[name]}" if name in known else name for name in names]
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *wanted])
    return f"{python} -m pip install {shlex.join(wanted)}"


def rebuild() -> str:
    """Returns the command that installs this package and builds its C extension."""
    root = pathlib.Path(__file__).resolve().parents[2]
    if (root / "setup.py").exists():
        return f"make -B -C {shlex.quote(str(root))} install"
    return install(DISTRIBUTION)


def find_libpython(library: str) -> str:
    """Returns the command after which the loader finds Python's shared library."""
    folders = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"]
    for folder in filter(None, folders):
        if pathlib.Path(folder, library).exists():
            return f"export LD_LIBRARY_PATH={shlex.quote(folder)}:$LD_LIBRARY_PATH"
    if "pyenv" in sys.base_prefix:
        version = "{}.{}.{}".format(*sys.version_info)
        return f"PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install --force {version}"
    return f"apt-get install {library.split('.so')[0]}"


def by_error(error: str) -> str:
    """Returns what mends an error that names its cause, empty for any other."""
    library = re.search(r"libpython[\d.]+\.so[\d.]*\d", error)
    if library:
        return find_libpython(library[0])
    if "undefined symbol" in error or "libtensorflow" in error:
        return install(*TENSORFLOW, "dm-launchpad", "dm-reverb")
    if "MemoryError" in error or "cannot allocate" in error.lower():
        most = re.search(r"--max_replay_size of (\d+) at most", error)
        return f"choose a smaller replay: --max_replay_size={most[1]}" if most else ""
    if "No space left" in error or re.search(r"expected \d+ MB free", error):
        return "free space there, or choose another folder: --workdir=FOLDER"
    if "No usable temporary directory" in error:
        return "export TMPDIR=/a/folder/to/write/in"
    package = re.search(r"need the package ([\w.]+)", error)
    if package:
        return install(_DISTRIBUTIONS.get(package[1], package[1]))
    module = re.search(r"No module named '([\w]+)", error)
    if module and module[1] == "acme_quant":
        return rebuild()
    if module:
        return install(_DISTRIBUTIONS.get(module[1], module[1]))
    if "ImportError" not in error and re.search(_BAD_ENVIRONMENT, error):
        return "choose an environment that can be made: --env=NAME"
    return ""
