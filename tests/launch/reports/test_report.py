from __future__ import annotations

import json
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import pytest
import synthetic_runs as synthetic

from acme_quant.launch.reports import comparison as report
from acme_quant.launch.reports import figures, measures, runs


@pytest.fixture
def comparison(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two seeds: int8 twice as fast as float32 and as Acme's own, at the same power."""
    synthetic.write_comparison(tmp_path, ["float32", "int8", "acme"], [0, 1])
    for seed in (0, 1):
        # The start-up of seed 1 is 10 s longer, for every arm.
        startup_s = 10.0 * (seed + 1)
        for arm, speed in (("float32", 10.0), ("int8", 20.0), ("acme", 5.0)):
            synthetic.write_run(
                report.run_folder(tmp_path, arm, seed),
                speed,
                startup_s=startup_s,
                actor="acme" if arm == "acme" else "engine",
            )
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the figures out: they take longer than all else."""
    monkeypatch.setattr(figures, "draw", lambda *args: {})


def found_in(folder: pathlib.Path, level: float | None = None) -> dict[str, Any]:
    """Returns the findings without drawing them."""
    return report.read(folder, level)[2].to_json()


def test_speedup_is_exact_for_known_curves(comparison: pathlib.Path) -> None:
    whole = found_in(comparison)["whole_run"]
    assert whole["learner_steps"] == {0: 1000.0, 1: 1000.0}
    assert whole["seconds"]["float32"] == {0: 110.0, 1: 120.0}
    assert whole["seconds"]["int8"] == {0: 60.0, 1: 70.0}
    cell = whole["speedup"]["float32"]["int8"]
    assert cell["by_seed"] == {0: 110 / 60, 1: 120 / 70}
    assert cell["mean"] == pytest.approx((110 / 60 * 120 / 70) ** 0.5)
    assert whole["training_speedup"]["float32"]["int8"]["mean"] == pytest.approx(2.0)
    assert whole["training_speedup"]["acme"]["int8"]["mean"] == pytest.approx(4.0)


def test_energy_ratio_is_exact_for_known_curves(comparison: pathlib.Path) -> None:
    whole = found_in(comparison)["whole_run"]
    assert whole["kwh"]["float32"][0] == pytest.approx(36 * 110 / 3.6e6)
    assert whole["kwh_ratio"]["float32"]["int8"]["by_seed"][0] == pytest.approx(
        110 / 60
    )
    assert whole["kg_co2"]["int8"][1] == pytest.approx(0.5 * 36 * 70 / 3.6e6)


def test_levels_and_their_times_are_exact(comparison: pathlib.Path) -> None:
    found = found_in(comparison)
    # The last three evaluations are 900, 950, 1000: the best smoothed return is 950.
    names = [(level["name"], level["return"]) for level in found["levels"]]
    assert names == [
        ("50%", pytest.approx(475.0)),
        ("80%", pytest.approx(760.0)),
        ("90%", pytest.approx(855.0)),
        ("95%", pytest.approx(902.5)),
    ]
    # Means of three stand at 50 k + 50: 475 is first passed by that of 450, 500, 550.
    half = found["levels"][0]
    assert half["arms"]["float32"]["seconds"] == {0: 65.0, 1: 75.0}
    assert half["arms"]["int8"]["seconds"] == {0: 37.5, 1: 47.5}
    assert half["speedup"]["float32"]["int8"]["by_seed"][0] == pytest.approx(65 / 37.5)


def test_given_level_takes_the_place_of_shares(comparison: pathlib.Path) -> None:
    (level,) = found_in(comparison, level=100.0)["levels"]
    assert level["return"] == 100.0
    assert level["arms"]["int8"]["seconds"][0] == 10.0 + 150 / 20


def test_levels_below_zero_lie_below_the_best(tmp_path: pathlib.Path) -> None:
    synthetic.write_run(tmp_path, start=-500.0, top=-100.0)
    run = runs.read(tmp_path, "float32", 0)
    best = measures.best_return(run)
    assert best == pytest.approx(-120.0)
    values = [value for _, value in measures.levels({"float32": [run]}, None)]
    assert values == pytest.approx([-180.0, -144.0, -132.0, -126.0])


def test_breakdown_bytes_and_staleness_are_read(comparison: pathlib.Path) -> None:
    by_arm = found_in(comparison)["by_arm"]
    assert by_arm["int8"]["breakdown_us"] == synthetic.STAGE_US
    assert by_arm["int8"]["bytes_sent"]["mean"] == 20 * 1000 + 500
    assert by_arm["int8"]["staleness"]["mean"] == 30.0
    assert by_arm["int8"]["kwh_by_role"]["actor"] == pytest.approx(
        3 * by_arm["int8"]["kwh_by_role"]["learner"]
    )
    assert by_arm["acme"]["bytes_sent"]["mean"] is None
    assert by_arm["acme"]["breakdown_us"] == {}


def test_page_needs_nothing_but_itself(comparison: pathlib.Path) -> None:
    report.write(comparison)
    text = (comparison / "report" / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 6
    assert not re.search(r"(src|href)=.(?!data:)", text)
    assert "<script" not in text
    for method in measures.METHODS.values():
        assert method.split("'")[0][:40] in text


def test_report_folder_has_csv_json_and_figures(comparison: pathlib.Path) -> None:
    report.write(comparison)
    folder = comparison / "report"
    assert len(list((folder / "csv").glob("*.csv"))) == 6
    assert {p.stem for p in folder.glob("*.png")} == {
        *("return", "time_to_level", "whole_run", "breakdown", "energy", "traffic")
    }
    assert json.loads((folder / "summary.json").read_text())["seeds"] == [0, 1]


@pytest.mark.usefixtures("undrawn")
def test_crashed_run_is_named_and_in_no_mean(comparison: pathlib.Path) -> None:
    place = report.run_folder(comparison, "int8", 1)
    synthetic.write_run(place, 100.0, exit_code=1)
    found = report.write(comparison).to_json()
    assert "int8, seed 1: it ended with exit code 1." in found["problems"]
    assert found["by_arm"]["int8"]["runs"] == 1
    assert list(found["whole_run"]["speedup"]["float32"]["int8"]["by_seed"]) == [0]
    assert "failed (1)" in (comparison / "report" / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_missing_arm_has_no_ratio_and_is_named(comparison: pathlib.Path) -> None:
    shutil.rmtree(comparison / "runs" / "acme")
    found = report.write(comparison).to_json()
    assert (
        "acme: no finished run, so it is in no mean and no ratio."
        in (found["problems"])
    )
    assert found["references"] == ["float32"]
    assert found["whole_run"]["speedup"]["float32"]["acme"]["mean"] is None
    assert "not measured" in (comparison / "report" / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_level_never_reached_is_said(comparison: pathlib.Path) -> None:
    for seed in (0, 1):
        synthetic.write_run(report.run_folder(comparison, "int8", seed), top=600.0)
    found = report.write(comparison).to_json()
    assert found["levels"][0]["arms"]["int8"]["reached"] == 2
    assert found["levels"][3]["arms"]["int8"]["mean"] is None
    assert found["levels"][3]["speedup"]["float32"]["int8"]["mean"] is None
    assert "never reached" in (comparison / "report" / "report.html").read_text()


@pytest.mark.usefixtures("undrawn")
def test_loss_is_kept_in(comparison: pathlib.Path) -> None:
    for seed in (0, 1):
        synthetic.write_run(report.run_folder(comparison, "int8", seed), 5.0)
    found = report.write(comparison).to_json()
    assert found["whole_run"]["speedup"]["float32"]["int8"]["mean"] < 1.0
    assert "(slower)" in (comparison / "report" / "report.html").read_text()


def test_no_level_without_float32(comparison: pathlib.Path) -> None:
    shutil.rmtree(comparison / "runs" / "float32")
    found = found_in(comparison)
    assert found["levels"] == []
    assert any("no level" in problem for problem in found["problems"])


def test_comparison_without_any_run_is_a_page_of_problems(
    tmp_path: pathlib.Path,
) -> None:
    synthetic.write_comparison(tmp_path, ["float32", "int8"], [0])
    found = report.write(tmp_path).to_json()
    assert "int8: no run of seed 0." in found["problems"]
    assert (tmp_path / "report" / "report.html").exists()


def test_folder_of_another_version_is_refused_plainly(tmp_path: pathlib.Path) -> None:
    synthetic.write_comparison(tmp_path, ["int8"], [0], format=0)
    with pytest.raises(report.ReportError, match="format 1, got 0"):
        found_in(tmp_path)


def test_folder_without_comparison_is_refused_plainly(tmp_path: pathlib.Path) -> None:
    with pytest.raises(report.ReportError, match="no comparison.json"):
        found_in(tmp_path)


def test_file_of_another_version_is_left_out_and_named(
    comparison: pathlib.Path,
) -> None:
    place = report.run_folder(comparison, "int8", 0)
    synthetic.write_csv(place / "csv" / "evaluator.csv", [{"step": 1, "reward": 2.0}])
    found = found_in(comparison)
    assert any("evaluator.csv has no column wall_s" in p for p in found["problems"])
    assert found["runs"][1]["best_return"] is None


@pytest.mark.parametrize("junk", ["", "\n", "wall_s\n", "a,b\n1\n", "\x00\x01", "{}"])
def test_broken_files_never_raise(comparison: pathlib.Path, junk: str) -> None:
    place = report.run_folder(comparison, "int8", 0)
    for path in [*place.glob("csv/*.csv"), *place.glob("*.*")]:
        path.write_text(junk)
    found = found_in(comparison)
    assert any(problem.startswith("int8, seed 0") for problem in found["problems"])


def test_partial_energy_is_called_partial(comparison: pathlib.Path) -> None:
    path = report.run_folder(comparison, "int8", 0) / "energy.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    found = found_in(comparison)
    assert any("energy is partial" in problem for problem in found["problems"])
    # The last reading is older than the last learner step: nothing is extrapolated.
    assert found["whole_run"]["kwh"]["int8"][0] is None


def test_unknown_energy_is_no_zero(comparison: pathlib.Path) -> None:
    (report.run_folder(comparison, "int8", 0) / "energy.csv").unlink()
    found = found_in(comparison)
    assert found["runs"][1]["kwh"] is None
    assert list(found["whole_run"]["kwh_ratio"]["float32"]["int8"]["by_seed"]) == [1]


def test_resumed_times_are_added_up(tmp_path: pathlib.Path) -> None:
    rows = [{"wall_s": t, "x": 0} for t in (1.0, 5.0, 2.0, 3.0, 1.0)]
    synthetic.write_csv(tmp_path / "a.csv", rows)
    table = runs.read_table(tmp_path / "a.csv")
    assert table["wall_s"].tolist() == [1.0, 5.0, 7.0, 8.0, 9.0]


def test_nothing_is_extrapolated() -> None:
    table = runs.Table({"x": np.array([1.0, 2.0]), "y": np.array([10.0, 20.0])})
    assert table.at("y", "x", 1.5) == 15.0
    assert table.at("y", "x", 2.1) is None
    assert table.at("y", "x", 0.9) is None


def test_references_are_held_against_each_other_one_way() -> None:
    pairs = measures.pairs(["float32", "int8", "acme"], ["float32", "acme"])
    assert pairs == [("float32", "int8"), ("acme", "float32"), ("acme", "int8")]


def test_every_arm_has_a_colour_of_its_own() -> None:
    arms = ["int8", "int4", "int5", "float32", "acme"]
    assert len(set(figures.colours(arms).values())) == len(arms)
