"""Exported C on other CPUs, by cross compilers and qemu: `make test-export-cross`."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from exported_policies import dueling, every_kind, policy_of, untried
from small_policies import policy

from acme_quant.export.c_check import WARNINGS
from acme_quant.policy import quantizers

# Compiler's prefix -> the emulator of Debian's qemu-user.
TARGETS = {
    "aarch64-linux-gnu": "qemu-aarch64",
    "arm-linux-gnueabihf": "qemu-arm",
    "riscv64-linux-gnu": "qemu-riscv64",
}
WANTED = os.environ.get("ACME_QUANT_TEST_CROSS")
# -std=gnu99 contracts to fused operations by itself, where the CPU has them.
FLAGS = ["-std=gnu99", "-O2", "-static", *WARNINGS.split()]


@pytest.mark.skipif(not WANTED, reason="only by `make test-export-cross`")
@pytest.mark.parametrize("target", TARGETS)
def test_other_cpus_give_the_bits_of_the_engine(
    tmp_path: pathlib.Path, target: str
) -> None:
    compiler, emulator = f"{target}-gcc", TARGETS[target]
    for program in (compiler, emulator):
        if shutil.which(program) is None:
            pytest.fail(f"expected {program} of Debian's packages, found none")
    rng = np.random.default_rng(0)
    built = {**every_kind(rng), "dueling": dueling(rng)}
    policies = {name: policy_of(each) for name, each in built.items()}
    policies.update({f"net_{name}": policy(name) for name in quantizers.QUANTIZERS})
    wrong = []
    for name, each in policies.items():
        for file, content in untried(each, name).files.items():
            (tmp_path / file).write_bytes(content)
        build = [compiler, *FLAGS, f"{name}.c", f"{name}_test.c", "-o", name, "-lm"]
        subprocess.run(build, cwd=tmp_path, check=True)
        if subprocess.run([emulator, f"./{name}"], cwd=tmp_path).returncode:
            wrong.append(name)
    assert not wrong
