"""A report is drawn quietly, whatever its arms are and however little was measured."""

from __future__ import annotations

import pathlib
import warnings

import numpy as np
import pytest
import synthetic_runs as synthetic
from matplotlib.figure import Figure

from acme_quant.acting import timing
from acme_quant.launch.nodes import ENERGY_ROLES
from acme_quant.launch.reports import balance_page, comparison, figures
from acme_quant.launch.reports.operating_point import Point
from acme_quant.policy.quantizers import QUANTIZERS

ALL_ARMS = [*QUANTIZERS, "acme"]


def keep_evaluations(folder: pathlib.Path, count: int) -> None:
    """Leaves the first `count` evaluations of a run."""
    path = folder / "csv" / "evaluator.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: count + 1]))


@pytest.fixture
def loud() -> None:
    """Makes an error of each warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def written(
    folder: pathlib.Path, arms: list[str], evaluations: int | None = None
) -> comparison.findings.Findings:
    """Writes a comparison of one seed, and its report."""
    synthetic.write_comparison(folder, arms, [0])
    for arm in arms:
        place = comparison.run_folder(folder, arm, 0)
        actor = "acme" if arm == "acme" else "engine"
        synthetic.write_run(place, actor=actor)
        if evaluations is not None:
            keep_evaluations(place, evaluations)
    return comparison.write(folder)


@pytest.mark.usefixtures("loud")
def test_a_report_of_every_format_and_the_baseline_is_drawn(
    tmp_path: pathlib.Path,
) -> None:
    written(tmp_path, ALL_ARMS)
    assert len(list((tmp_path / "report").glob("*.png"))) == 6


def test_colours_never_end_and_none_comes_twice() -> None:
    arms = [f"arm {index}" for index in range(100)]
    assert len(set(figures.colours([*ALL_ARMS, *arms]).values())) == len(ALL_ARMS) + 100


def test_every_stage_and_every_role_is_in_its_bar() -> None:
    for parts in (timing.STAGES, ENERGY_ROLES, [str(n) for n in range(20)]):
        figure = figures.stacked({"int8": dict.fromkeys(parts, 1.0)}, parts, (), "us")
        assert len(figure.axes[0].patches) == len(parts)


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("evaluations", [0, 1, 2, 3])
def test_few_evaluations_are_drawn_quietly(
    tmp_path: pathlib.Path, evaluations: int
) -> None:
    found = written(tmp_path, ["float32", "int8"], evaluations)
    assert found.runs[0].evaluations == evaluations
    page = (tmp_path / "report" / "report.html").read_text()
    assert ("not measured" in page) or evaluations == 3


def drawn(folder: pathlib.Path) -> Figure:
    about, runs, found = comparison.read(folder)
    figure = figures.returns(runs, found)
    assert figure is not None
    return figure


def test_one_evaluation_is_a_point_that_one_can_see(tmp_path: pathlib.Path) -> None:
    written(tmp_path, ["float32", "int8"], evaluations=1)
    marked = [line for line in drawn(tmp_path).axes[0].lines if line.get_marker()]
    assert [line.get_marker() for line in marked[:2]] == ["o", "o"]


def test_a_panel_without_values_says_so(tmp_path: pathlib.Path) -> None:
    written(tmp_path, ["float32", "int8"], evaluations=2)
    for arm in ("float32", "int8"):
        (comparison.run_folder(tmp_path, arm, 0) / "energy.csv").unlink()
    said = [[text.get_text() for text in a.texts] for a in drawn(tmp_path).axes]
    assert said == [[], [], ["not measured"]]


def test_runs_that_do_not_overlap_have_no_mean(tmp_path: pathlib.Path) -> None:
    arms, seeds = ["float32"], [0, 1]
    synthetic.write_comparison(tmp_path, arms, seeds)
    for seed in seeds:
        place = comparison.run_folder(tmp_path, "float32", seed)
        synthetic.write_run(place, startup_s=1000.0 * seed)
    lines = drawn(tmp_path).axes[0].lines
    assert [len(line.get_xdata()) for line in lines[:2]] == [21, 21]
    assert not any(len(np.asarray(line.get_xdata())) == 200 for line in lines)


@pytest.mark.usefixtures("loud")
def test_balance_without_any_number_is_drawn_quietly(tmp_path: pathlib.Path) -> None:
    points = [Point(name, 1, 64, 8.0) for name in ALL_ARMS]
    about = {"command": ["balance"], "host": {"cores": 2}}
    found = balance_page.write(tmp_path, points, about)
    figure = balance_page.draw(points, found)
    said = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert said == [["not measured"]] * 3
