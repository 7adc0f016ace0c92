"""The kernel tests once more, in a build that reports every bad access and overflow.

AddressSanitizer sees reads and writes outside of a buffer, UndefinedBehaviorSanitizer
signed overflow, wrong shifts, misaligned access; either ends the process with a report.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

TESTS = pathlib.Path(__file__).parent
PACKAGE = TESTS.parents[1] / "acme_quant"
COMPILER = shutil.which("gcc")
FLAGS = (
    "-O1",
    "-g",
    "-std=c11",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wno-psabi",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
# Left out: what measures memory (a sanitizer keeps freed memory), and what starts
# interpreters of its own, which would not have this build.
LEFT_OUT = "not memory_does_not_grow and not choice and not environment"


def runtime_library(name: str) -> str:
    answer = subprocess.run(
        [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True
    )
    return answer.stdout.strip()


def build(root: pathlib.Path) -> None:
    """Copies the NumPy-only package to root and compiles it with sanitizers."""
    target = root / "acme_quant" / "kernels"
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(PACKAGE / "kernels", target, ignore=ignore)
    (root / "acme_quant" / "__init__.py").touch()
    include = f"-I{sysconfig.get_paths()['include']}"
    sources = sorted(map(str, target.glob("*.c")))
    library = target / f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [COMPILER, *FLAGS, include, *sources, "-o", str(library)], check=True
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if COMPILER is None or not os.path.isabs(runtime_library("libasan.so")):
        pytest.skip("no gcc with sanitizers")
    root = tmp_path_factory.mktemp("sanitized")
    build(root)
    return root


def run(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs Python in the sanitized build."""
    libraries = ("libasan.so", "libubsan.so")
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(map(runtime_library, libraries)),
        "PYTHONPATH": f"{root}{os.pathsep}{TESTS.parent / 'fixtures'}",
        # The interpreter itself keeps memory to its end.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        # Each array an allocation of its own, so that its ends are watched.
        "PYTHONMALLOC": "malloc",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize(
    "part", ["", "_products", "_rows", "_columns", "_program", "_run"]
)
def test_kernel_tests_pass_under_sanitizers(root: pathlib.Path, part: str) -> None:
    file = TESTS / f"test_kernels{part}.py"
    options = ("-q", "-x", "-k", LEFT_OUT, "-p", "no:cacheprovider", "-c", os.devnull)
    done = run(root, "-m", "pytest", *options, str(file))
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


def test_sanitized_build_is_the_one_that_runs(root: pathlib.Path) -> None:
    done = run(root, "-c", "from acme_quant.kernels import _kernels as k; print(k)")
    assert str(root) in done.stdout, done.stderr[-3000:]


def test_sanitizers_see_a_read_beyond_a_buffer(root: pathlib.Path) -> None:
    # A lie about a row's length, told through ctypes, must end the process.
    code = (
        "import ctypes, numpy as np\n"
        "from acme_quant.kernels import _kernels\n"
        "ctypes.memmove(bytes(8), np.zeros(4, 'u1').ctypes.data, 4096)\n"
    )
    done = run(root, "-c", code)
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr
