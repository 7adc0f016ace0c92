from __future__ import annotations

import csv
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from acme_quant.launch.nodes import ROLES
from acme_quant.records import cpu_times, csv_rows, energy


class FakeSource:
    """A machine of exactly 3.6 kW: 0.001 kWh a second, one second a reading."""

    def __init__(self, country_iso_code: str) -> None:
        self.country = country_iso_code
        self.readings = 0

    def read(self) -> energy._Reading:
        self.readings += 1
        kwh = 0.001 * self.readings
        return energy._Reading(
            kwh=kwh,
            kg_co2=0.4 * kwh,
            parts={"cpu": 0.75 * kwh, "gpu": None, "ram": 0.25 * kwh},
            metered_s=float(self.readings),
            method="CPU RAPL",
            missing=(energy.NEVER_METERED,),
        )

    def stop(self) -> energy._Reading:
        return self.read()


def run_meter(path: pathlib.Path, seconds: float = 0.0) -> energy.Energy:
    meter = energy.EnergyMeter(path, flush_s=0.05, roles=ROLES)
    meter.start(lambda: {"learner": os.getpid()})
    time.sleep(seconds)
    return meter.stop()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "_Codecarbon", FakeSource)


def test_last_row_is_the_total_and_marked_final(
    fake: None, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "energy.csv"
    total = run_meter(path, 0.3)
    rows = csv_rows.read_rows(path)
    assert [row["final"] for row in rows] == ["0"] * (len(rows) - 1) + ["1"]
    assert float(rows[-1]["kwh"]) == pytest.approx(total.kwh)
    assert rows[-1]["kwh_gpu"] == ""
    assert rows[-1]["method"] == "CPU RAPL"
    assert rows[-1]["missing"] == energy.NEVER_METERED


def test_roles_sum_to_the_whole(fake: None, tmp_path: pathlib.Path) -> None:
    total = run_meter(tmp_path / "energy.csv", 0.2)
    row = csv_rows.read_rows(tmp_path / "energy.csv")[-1]
    by_role = [float(row[f"kwh_{role}"]) for role in cpu_times.all_roles(ROLES)]
    assert sum(by_role) == pytest.approx(total.kwh, rel=1e-6)
    assert sum(total.shares.values()) == pytest.approx(1.0)


def test_second_session_goes_on_from_the_first(
    fake: None, tmp_path: pathlib.Path
) -> None:
    first = run_meter(tmp_path / "energy.csv")
    second = run_meter(tmp_path / "energy.csv")
    assert first.kwh == pytest.approx(0.001)
    assert second.kwh == pytest.approx(first.kwh + 0.001)
    assert second.metered_s == pytest.approx(2.0)


def test_file_of_other_columns_is_kept_aside(
    fake: None, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "energy.csv"
    path.write_text("seconds,joules\n1,2\n")
    assert run_meter(path).kwh == pytest.approx(0.001)
    assert (tmp_path / "energy.old.csv").read_text() == "seconds,joules\n1,2\n"


def test_row_cut_short_is_left_out(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "energy.csv"
    path.write_text("wall_s,kwh\n1,0.1\n2")
    assert csv_rows.read_rows(path) == [{"wall_s": "1", "kwh": "0.1"}]


def test_failing_source_gives_unknown_and_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def broken(country: str) -> None:
        raise RuntimeError("no counters here")

    monkeypatch.setattr(energy, "_Codecarbon", broken)
    total = run_meter(tmp_path / "energy.csv", 0.1)
    assert total.kwh is None and total.kg_co2 is None and total.shares == {}
    assert "no counters here" in total.missing[-1]
    assert csv_rows.read_rows(tmp_path / "energy.csv")[-1]["kwh"] == ""


def test_unwritable_folder_raises_nothing(fake: None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    total = run_meter(tmp_path / "file" / "energy.csv", 0.1)
    assert total.kwh is None
    assert "meter failed" in total.missing[-1]


def test_meter_not_started_is_unknown(tmp_path: pathlib.Path) -> None:
    assert energy.EnergyMeter(tmp_path / "energy.csv").stop().kwh is None


@pytest.mark.parametrize(
    "node, role",
    [
        ("actor_12", "actor"),
        ("learner", "learner"),
        ("counter", "services"),
        ("launcher", "services"),
    ],
)
def test_role_is_the_name_without_its_number(node: str, role: str) -> None:
    assert cpu_times.role_of(node, ROLES) == role


def test_cpu_time_of_an_ended_process_is_kept() -> None:
    times = cpu_times.CpuTimes(ROLES)
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", burn + "input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    times.sample({"actor_0": process.pid})
    before = times._used["actor", process.pid].seconds
    process.communicate(b"\n")
    times.sample({"actor_0": process.pid})
    # The kernel counts in ticks of 10 ms.
    assert before >= 0.29
    assert times._used["actor", process.pid].seconds == before


def test_process_older_than_the_meter_is_counted_from_then_on() -> None:
    times = cpu_times.CpuTimes(ROLES)
    times.sample({"learner": 1})
    assert times._used["learner", 1].seconds == 0.0


def test_nodes_are_looked_at_before_the_first_interval(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else all that they use until its end would count as other programs'.
    monkeypatch.setattr(energy, "SAMPLE_S", 60.0)
    asked = threading.Event()
    meter = energy.EnergyMeter(tmp_path / "energy.csv", flush_s=60.0)
    meter.start(lambda: asked.set() or {})
    assert asked.wait(20.0)
    meter.stop()


def test_codecarbon_is_silent_and_leaves_no_trace(
    tmp_path: pathlib.Path,
    capfd: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODECARBON_EMISSIONS_ENDPOINT", "http://127.0.0.1:9/")
    monkeypatch.setenv("CODECARBON_OUTPUT_METHODS", "csv")
    monkeypatch.setenv("CODECARBON_ALLOW_MULTIPLE_RUNS", "false")
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    folder = tmp_path / "out"
    meter = energy.EnergyMeter(folder / "energy.csv", flush_s=0.5)
    meter.start(lambda: {"learner": os.getpid()})
    deadline = time.monotonic() + 20
    while meter.read().kwh is None and time.monotonic() < deadline:
        time.sleep(0.1)
    total = meter.stop()
    output = capfd.readouterr()
    assert output.out == "" and output.err == ""
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in folder.iterdir()] == ["energy.csv"]
    assert total.kwh is None or total.kwh > 0
    assert not logging.getLogger("codecarbon").propagate
    with (folder / "energy.csv").open() as file:
        assert next(csv.reader(file)) == [*energy.FIELDS, "kwh_services", "kwh_other"]


def test_unknown_country_leaves_carbon_unknown(tmp_path: pathlib.Path) -> None:
    meter = energy.EnergyMeter(tmp_path / "energy.csv", "XYZ", flush_s=0.5)
    meter.start(dict)
    time.sleep(0.1)
    total = meter.stop()
    assert total.kg_co2 is None
    assert any("XYZ" in missing for missing in total.missing)


def test_partial_row_remains_after_kill(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "energy.csv"
    program = (
        "import time; from acme_quant.records import energy\n"
        f"energy.EnergyMeter({str(path)!r}, flush_s=0.3).start(dict)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 30
    while not csv_rows.read_rows(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.wait()
    row = csv_rows.read_rows(path)[-1]
    assert row["final"] == "0"
    assert float(row["kwh"]) > 0


def test_import_brings_neither_codecarbon_nor_psutil() -> None:
    program = (
        "import sys; import acme_quant.records.energy\n"
        "assert not {'codecarbon', 'psutil', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
