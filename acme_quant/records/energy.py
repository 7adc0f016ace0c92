"""The energy of one run on one machine, and which nodes used it.

    meter = EnergyMeter(workdir / "energy.csv")
    meter.start(lambda: {"learner": 4711, "actor_0": 4712})
    ...
    print(meter.stop().kwh)

codecarbon's offline tracker is the source: RAPL counters where the machine lets us read
them, else a model of the CPU's load; memory by a model; graphics cards by their own
counters. The whole machine is metered, whatever else runs on it; the launcher owns the
one meter, so that several nodes do not count one machine several times. The energy is
divided among the nodes' roles by the CPU time of their processes, with what other
programs used as `other`.

Training never fails for energy: what cannot be known is None here and an empty cell in
the file, never 0. Nothing goes through the network, no lock file is made and no signal
handler is set. codecarbon is imported in a thread, while the nodes start.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acme_quant.records.cpu_times import CpuTimes, all_roles
from acme_quant.records.csv_rows import read_rows
from acme_quant.records.whole_records import WholeRecords

DEFAULT_COUNTRY = "USA"
FIELDS = (
    *("wall_s", "metered_s", "cpu_s", "kwh", "kwh_cpu", "kwh_gpu", "kwh_ram", "kg_co2"),
    *("country", "method", "missing", "final"),
)  # and `kwh_ROLE` for each role
# CPU times are read often enough that a node which dies takes little with it.
SAMPLE_S = 1.0
FLUSH_S = 20.0
# An unreadable file system or a hanging driver must not keep a run from ending.
STOP_TIMEOUT_S = 10.0
NEVER_METERED = "mainboard, disks, network, cooling and supply losses"


Pids = Callable[[], Mapping[str, int]]


@dataclasses.dataclass(frozen=True)
class Energy:
    """What a run used so far.

    Attributes:
      kwh: kilowatt hours of the machine; None when unknown.
      kg_co2: kilograms of CO2 equivalents, by the mean intensity of the country's
        electricity; None when unknown.
      method: how the parts were metered.
      missing: parts that are not in `kwh`, in words.
      shares: role -> part of `kwh`, by CPU time; sums to 1, empty when unknown.
      metered_s: seconds that `kwh` covers.
      cpu_s: CPU seconds that the machine was busy in them, all processors together.
      parts: "cpu", "gpu", "ram" -> kilowatt hours; None when unknown.
    """

    kwh: float | None = None
    kg_co2: float | None = None
    method: str = "unknown"
    missing: tuple[str, ...] = ()
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metered_s: float = 0.0
    cpu_s: float = 0.0
    parts: Mapping[str, float | None] = dataclasses.field(default_factory=dict)


class EnergyMeter:
    """Meters the machine from `start` to `stop` and keeps a CSV file of it.

    A row is written every FLUSH_S seconds, with totals so far; the row of `stop` has
    `final` 1. After kill -9 the last row is the partial result. Where the file exists
    already, its totals are gone on from: a resumed run has one sum.
    """

    def __init__(
        self,
        path: os.PathLike[str] | str,
        country_iso_code: str = DEFAULT_COUNTRY,
        *,
        started: float | None = None,
        flush_s: float = FLUSH_S,
        roles: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares a meter; nothing is read or written before `start`.

        Args:
          path: the CSV file.
          country_iso_code: three letters, the country whose electricity is used.
          started: time.time() of the run's launch, the zero of column `wall_s`.
          flush_s: seconds between two rows.
          roles: {node: role that its energy is counted under}; others are services.
        """
        self._roles = roles or {}
        self._fields = (*FIELDS, *(f"kwh_{role}" for role in all_roles(self._roles)))
        self._path = pathlib.Path(path)
        self._rows = WholeRecords(self._path)
        self._country = country_iso_code
        self._started = time.time() if started is None else started
        self._flush_s = flush_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._energy = Energy(missing=("not metered yet",))
        self._earlier: dict[str, float] = {}
        self._earlier_unknown = False

    def start(self, pids: Pids) -> None:
        """Starts metering in a thread; returns at once.

        Args:
          pids: returns {node name: process id} of the nodes that run now.
        """
        self._thread = threading.Thread(
            target=self._run, args=(pids,), name="energy", daemon=True
        )
        self._thread.start()

    def read(self) -> Energy:
        """Returns the energy as of the last row; does not wait."""
        return self._energy

    def stop(self) -> Energy:
        """Writes the last row and returns the run's energy; waits a bounded time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)
        return self._energy

    def _run(self, pids: Pids) -> None:
        try:
            self._open()
            source, cpu_times = _Codecarbon(self._country), CpuTimes(self._roles)
            # What the nodes used while codecarbon was imported is not metered.
            cpu_times.sample(pids())
            next_flush_s = time.monotonic()
            while not self._stop.wait(min(SAMPLE_S, self._flush_s)):
                cpu_times.sample(pids())
                if time.monotonic() >= next_flush_s:
                    next_flush_s = time.monotonic() + self._flush_s
                    self._flush(source.read(), cpu_times)
            cpu_times.sample(pids())
            self._flush(source.stop(), cpu_times, final=True)
        except Exception as error:  # Whatever it is, training goes on.
            known = self._energy
            reason = f"the meter failed: {type(error).__name__}: {error}"
            missing = tuple(m for m in known.missing if m != "not metered yet")
            self._energy = dataclasses.replace(known, missing=(*missing, reason))
            self._write(self._energy, final=False)

    def _open(self) -> None:
        """Reads the totals of an earlier session, or writes the head of a new file."""
        rows = read_rows(self._path)
        if rows and tuple(rows[0]) != self._fields:
            self._path.replace(self._path.with_suffix(".old.csv"))
            rows = []
        for name in self._fields if rows else ():
            if name.startswith("k") or name in ("metered_s", "cpu_s"):
                self._earlier[name] = float(rows[-1][name] or 0.0)
        self._earlier_unknown = bool(rows) and not rows[-1]["kwh"]
        if not rows:
            self._path.unlink(missing_ok=True)
            self._append(self._fields)

    def _flush(
        self, reading: _Reading, cpu_times: CpuTimes, final: bool = False
    ) -> None:
        energy = self._total(reading, cpu_times)
        self._energy = energy
        self._write(energy, final)

    def _total(self, reading: _Reading, cpu_times: CpuTimes) -> Energy:
        """Adds the earlier sessions to a reading."""
        shares = cpu_times.shares()
        now: dict[str, float | None] = {
            "kwh": reading.kwh,
            "kg_co2": reading.kg_co2,
            "metered_s": reading.metered_s,
            "cpu_s": cpu_times.total(),
            **{f"kwh_{part}": value for part, value in reading.parts.items()},
        }
        known = reading.kwh is not None and shares
        for role in all_roles(self._roles):
            now[f"kwh_{role}"] = reading.kwh * shares[role] if known else None
        total = {
            name: None if value is None else value + self._earlier.get(name, 0.0)
            for name, value in now.items()
        }
        missing = reading.missing
        if self._earlier_unknown:
            missing += ("an earlier session of this run",)
        by_role = {role: total[f"kwh_{role}"] or 0.0 for role in all_roles(self._roles)}
        whole = sum(by_role.values())
        return Energy(
            kwh=total["kwh"],
            kg_co2=total["kg_co2"],
            method=reading.method,
            missing=missing,
            shares={r: v / whole for r, v in by_role.items()} if whole else {},
            metered_s=total["metered_s"] or 0.0,
            cpu_s=total["cpu_s"] or 0.0,
            parts={part: total[f"kwh_{part}"] for part in ("cpu", "gpu", "ram")},
        )

    def _write(self, energy: Energy, final: bool) -> None:
        row: dict[str, Any] = {
            "wall_s": round(time.time() - self._started, 3),
            "metered_s": round(energy.metered_s, 3),
            "cpu_s": round(energy.cpu_s, 2),
            "kwh": _cell(energy.kwh),
            "kg_co2": _cell(energy.kg_co2),
            "country": self._country,
            "method": energy.method,
            "missing": "; ".join(energy.missing),
            "final": int(final),
            **{f"kwh_{part}": _cell(value) for part, value in energy.parts.items()},
        }
        if energy.kwh is not None and energy.shares:
            for role, share in energy.shares.items():
                row[f"kwh_{role}"] = _cell(energy.kwh * share)
        self._append([row.get(name, "") for name in self._fields])

    def _append(self, cells: Sequence[Any]) -> None:
        line = io.StringIO()
        csv.writer(line).writerow(cells)
        self._rows.append(line.getvalue().encode())


@dataclasses.dataclass(frozen=True)
class _Reading:
    """Totals of one session, as the source knows them."""

    kwh: float | None
    kg_co2: float | None
    parts: Mapping[str, float | None]
    metered_s: float
    method: str
    missing: tuple[str, ...]


class _Codecarbon:
    """codecarbon's offline tracker without its noise, files, signals and threads."""

    def __init__(self, country_iso_code: str) -> None:
        """Imports codecarbon, looks for the machine's counters and starts metering.

        Raises:
          RuntimeError: with codecarbon's own last complaint, when it did not start.
        """
        import codecarbon

        self._complaints: list[str] = []
        # Its constructor replaces handlers and levels, but no filters.
        logging.getLogger("codecarbon").addFilter(self._swallow)
        self._keeper = _Keeper()
        # Every setting that a file or a variable of the environment could set to
        # something that writes, locks or talks to the network is set here.
        self._tracker = codecarbon.OfflineEmissionsTracker(
            country_iso_code=country_iso_code,
            region=None,
            cloud_provider=None,
            cloud_region=None,
            country_2letter_iso_code=None,
            # The tracker's own thread never fires: `flush` takes the readings.
            measure_power_secs=1e6,
            api_call_interval=-1,
            output_methods=[],
            output_handlers=[self._keeper],
            emissions_endpoint=None,
            electricitymaps_api_token="",
            allow_multiple_runs=True,
            tracking_mode="machine",
            log_level="error",
        )
        self._tracker.start()
        self._began = time.monotonic()
        self._country_known = _country_is_known(country_iso_code)
        self._country = country_iso_code
        if getattr(self._tracker, "_start_time", None) is None:
            raise RuntimeError(f"codecarbon did not start: {self._complaint()}")

    def read(self) -> _Reading:
        """Returns the totals since the start."""
        self._tracker.flush()
        return self._reading()

    def stop(self) -> _Reading:
        """Stops metering and returns the totals."""
        self._tracker.stop()
        return self._reading()

    def _reading(self) -> _Reading:
        data = self._keeper.data
        if data is None:
            raise RuntimeError(f"codecarbon gave no reading: {self._complaint()}")
        hardware = list(getattr(self._tracker, "_hardware", []))
        cpus = [h for h in hardware if type(h).__name__ != "RAM" and not _is_gpu(h)]
        has_gpu = any(_is_gpu(h) for h in hardware)
        missing = [NEVER_METERED]
        if not data.cpu_energy:
            missing.insert(0, "CPU")
        if not data.ram_energy:
            missing.insert(0, "RAM")
        if not has_gpu and _accelerator_devices():
            missing.insert(0, "accelerator (present, its counter cannot be read)")
        if not self._country_known:
            missing.append(f"the CO2 intensity of {self._country!r}, a country unknown")
        known = bool(data.cpu_energy)
        return _Reading(
            kwh=data.energy_consumed if known else None,
            kg_co2=data.emissions if known and self._country_known else None,
            parts={
                "cpu": data.cpu_energy or None,
                "gpu": data.gpu_energy if has_gpu else None,
                "ram": data.ram_energy or None,
            },
            metered_s=time.monotonic() - self._began,
            method=_method(cpus, has_gpu, data),
            missing=tuple(missing),
        )

    def _swallow(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self._complaints.append(record.getMessage())
        return False

    def _complaint(self) -> str:
        return self._complaints[-1] if self._complaints else "it gave no reason"


class _Keeper:
    """An output of codecarbon that keeps the newest totals."""

    def __init__(self) -> None:
        self.data: Any = None

    def out(self, total: Any, delta: Any) -> None:
        del delta
        self.data = total

    def live_out(self, total: Any, delta: Any) -> None:
        """Nothing is sent while a run goes on."""

    def task_out(self, data: Any, experiment_name: str) -> None:
        """There are no tasks."""

    def exit(self) -> None:
        """There is nothing to close."""


def _is_gpu(hardware: Any) -> bool:
    return type(hardware).__name__ == "GPU"


def _method(cpus: list[Any], has_gpu: bool, data: Any) -> str:
    """Returns in words how the parts were metered."""
    names = {
        "intel_rapl": "RAPL",
        "windows_emi": "RAPL",
        "cpu_load": "load model",
        "constant": "constant",
    }
    words = []
    for cpu in cpus:
        mode = getattr(cpu, "_mode", type(cpu).__name__)
        word = f"CPU {names.get(mode, mode)}"
        if names.get(mode) != "RAPL" and getattr(cpu, "_tdp", None):
            word += f" ({cpu._tdp:.0f} W at full load, by codecarbon's table)"
        words.append(word)
    words.append(f"RAM constant ({data.ram_power:.0f} W, by codecarbon's model)")
    if has_gpu:
        words.append("GPU counter")
    return ", ".join(words)


def _accelerator_devices() -> list[str]:
    """Returns device files of graphics cards and other accelerators."""
    patterns = ("nvidia[0-9]*", "kfd", "accel*")
    return [str(p) for pattern in patterns for p in pathlib.Path("/dev").glob(pattern)]


def _country_is_known(iso_code: str) -> bool:
    from codecarbon.input import DataSource

    return iso_code in DataSource().get_global_energy_mix_data()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
