"""The strictest limit counts, whichever group between ours and the root has it."""

from __future__ import annotations

import pathlib
import resource

import pytest

from acme_quant.launch.commands import balance
from acme_quant.launch.settings import control_groups, machine, memory


@pytest.fixture
def root(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path


def put(root: pathlib.Path, path: str, text: str) -> None:
    file = root / "cgroup" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def test_a_limit_of_a_parent_group_of_v2_counts(root: pathlib.Path) -> None:
    (root / "membership").write_text("0::/slurm/job_7/step_0\n")
    put(root, "slurm/job_7/step_0/memory.max", "max")
    put(root, "slurm/job_7/step_0/memory.current", "5")
    put(root, "slurm/job_7/memory.max", "2000000000")
    put(root, "slurm/job_7/memory.current", "500000000")
    put(root, "slurm/memory.max", "9000000000")
    put(root, "slurm/memory.current", "1")
    assert control_groups.memory_left() == 1_500_000_000
    assert memory.available_bytes() <= 1_500_000_000


def test_a_limit_of_v1_counts_and_its_word_for_none_does_not(
    root: pathlib.Path,
) -> None:
    (root / "membership").write_text("9:memory:/job\n8:cpu,cpuacct:/job\n")
    put(root, "memory/memory.limit_in_bytes", "9223372036854771712")
    put(root, "memory/memory.usage_in_bytes", "1")
    assert control_groups.memory_left() == control_groups.UNLIMITED
    put(root, "memory/job/memory.limit_in_bytes", "3000")
    put(root, "memory/job/memory.usage_in_bytes", "1000")
    assert control_groups.memory_left() == 2000
    put(root, "cpu,cpuacct/job/cpu.cfs_quota_us", "150000")
    put(root, "cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    assert control_groups.cpu_quota() == 1.5


def test_a_quota_of_v2_bounds_the_cores(root: pathlib.Path) -> None:
    (root / "membership").write_text("0::/a/b\n")
    put(root, "a/b/cpu.max", "max 100000")
    assert control_groups.cpu_quota() is None
    put(root, "a/cpu.max", "50000 100000")
    assert control_groups.cpu_quota() == 0.5
    assert machine.cores() == 1


def test_a_machine_without_control_groups_has_no_limit(root: pathlib.Path) -> None:
    assert control_groups.memory_left() == control_groups.UNLIMITED
    assert control_groups.cpu_quota() is None


def test_a_limited_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**50, 2**50))
    assert memory.available_bytes() < 2**50
    monkeypatch.setattr(resource, "getrlimit", lambda which: (2**20, 2**20))
    assert memory.available_bytes() == 0


def test_balance_tries_what_affinity_allows(
    root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert balance._default_actors() == (1, 2)
