"""The doctor: a fault is a finding with the command that mends it, no traceback."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from acme_quant.launch.commands import doctor, remedies
from acme_quant.launch.settings import memory


def shadow(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: str, code: str
) -> None:
    """Puts a module of this name before the installed one, for child processes."""
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_trial_that_works_is_no_fault() -> None:
    finding = doctor.try_out("kernels", [])
    assert finding.remedy == "" and "portable" in finding.text
    assert str(finding).startswith("ok")


def test_a_tensorflow_that_does_not_load_is_a_finding(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "/x/py_client.so: undefined symbol: _ZN10tensorflow6StatusE"
    shadow(tmp_path, monkeypatch, "tensorflow", f"raise ImportError({error!r})")
    finding = doctor.try_out("tensorflow", [])
    assert "undefined symbol" in finding.text and "Traceback" not in str(finding)
    assert "tensorflow==2.8.4" in finding.remedy and "install" in finding.remedy


def test_a_process_that_dies_is_a_finding(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os; os.kill(os.getpid(), 11)"
    shadow(tmp_path, monkeypatch, "tensorflow", code)
    finding = doctor.try_out("tensorflow", [])
    assert finding.text == "ended by signal 11" and finding.remedy


def test_a_trial_that_hangs_is_a_finding(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow(tmp_path, monkeypatch, "courier", "import time; time.sleep(600)")
    monkeypatch.setattr(doctor, "TRIAL_TIMEOUT_S", 2)
    finding = doctor.try_out("courier", [])
    assert finding.text == "no answer within 2 s" and "dm-launchpad" in finding.remedy


def test_a_missing_package_is_named_by_its_distribution(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "raise ModuleNotFoundError(\"No module named 'reverb'\")"
    shadow(tmp_path, monkeypatch, "reverb", code)
    assert "dm-reverb==0.7.3" in doctor.try_out("reverb", []).remedy


def test_a_missing_libpython_gets_the_loaders_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = "libpython3.10.so.1.0"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / library).touch()

    (tmp_path / "maps").write_text("00400000 r-xp /usr/bin/python3.10\n")
    monkeypatch.setattr(doctor, "MAPS", str(tmp_path / "maps"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(remedies.sysconfig, "get_config_var", lambda name: None)
    finding = doctor.check_libpython()
    assert library in finding.text and "not on the loader's path" in finding.text
    assert finding.remedy == f"export LD_LIBRARY_PATH={tmp_path}/lib:$LD_LIBRARY_PATH"
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/lib")
    assert doctor.check_libpython().remedy == ""


def test_a_wrong_version_is_named_with_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert doctor.check_pins().remedy == ""
    real = remedies.installed
    monkeypatch.setattr(
        remedies, "installed", lambda n: "2.9.3" if n == "tensorflow" else real(n)
    )
    finding = doctor.check_pins()
    assert finding.text == "expected tensorflow 2.8.4, got 2.9.3"
    assert finding.remedy.endswith("tensorflow==2.8.4")


def test_another_python_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_python().remedy == ""
    monkeypatch.setattr(doctor, "PYTHON", (3, 12))
    finding = doctor.check_python()
    assert "expects CPython 3.10" in finding.text and "make install" in finding.remedy


def test_a_replay_larger_than_the_memory_is_a_finding() -> None:
    finding = doctor.try_out("memory", ["--max_replay_size=1000000000000"])
    assert "MemoryError" in finding.text
    most = re.search(r"--max_replay_size of (\d+) at most", finding.text)[1]
    assert finding.remedy == f"choose a smaller replay: --max_replay_size={most}"


def test_a_workdir_that_cannot_be_made_is_a_finding() -> None:
    finding = doctor.try_out("workdir", ["--workdir=/proc/nowhere"])
    assert finding.remedy and "/proc" in finding.text


def test_an_unknown_environment_is_a_finding() -> None:
    finding = doctor.try_out("environment", ["--env=dm_control:cartpole:balanse"])
    assert "balanse" in finding.text
    assert finding.remedy == "choose an environment that can be made: --env=NAME"


@pytest.mark.parametrize(
    "error,remedy",
    [
        ("OSError: [Errno 28] No space left on device", "free space"),
        ("OSError: expected 512 MB free in /x, got 3 MB", "free space"),
        ("FileNotFoundError: No usable temporary directory found", "export TMPDIR="),
        ("gym environments need the package gymnasium, which is", "gymnasium=="),
        ("ModuleNotFoundError: No module named 'acme_quant.environments'", "make -B"),
    ],
)
def test_a_remedy_fits_the_error(error: str, remedy: str) -> None:
    assert remedy in remedies.by_error(error)


def test_the_memory_trial_of_an_unknown_environment_blames_the_environment() -> None:
    finding = doctor.try_out("memory", ["--env=dm_control:cartpole:balanse"])
    assert finding.remedy == "choose an environment that can be made: --env=NAME"


def test_an_unknown_flag_is_a_usage_error() -> None:
    finding = doctor.try_out("workdir", ["--no_such_flag=1"])
    assert finding.usage and "no_such_flag" in finding.text


def test_exit_code_and_last_line_say_whether_all_is_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", {})
    assert doctor.main(["doctor"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("healthy: acme-quant ") and "tensorflow 2.8.4" in last
    monkeypatch.setattr(doctor, "PYTHON", (3, 12))
    monkeypatch.setattr(
        doctor, "check_libpython", lambda: doctor.Finding("libpython", "gone", "mend")
    )
    assert doctor.main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 to be mended"


def test_the_doctor_itself_imports_nothing_heavy() -> None:
    code = (
        "import sys, acme_quant.launch.commands.doctor; "
        "heavy = {'numpy', 'tensorflow', 'acme', 'absl', 'launchpad', 'reverb'} "
        "& set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bytes_of_an_item_count_an_observation_once() -> None:
    from acme_quant import environments

    spec = environments.environment_spec("dm_control:cartpole:balance")
    numbers = 5 + 1 + 1 + 1
    assert memory.item_bytes(spec) == memory.ITEM_OVERHEAD_BYTES + 4 * numbers
    assert memory.describe(10**9, 2 * 10**9).startswith("a full replay takes 1.0 GB")
    assert memory.describe(2 * 10**9, 10**9).startswith("warning: ")
    assert 10**8 < memory.available_bytes() < 2**50
