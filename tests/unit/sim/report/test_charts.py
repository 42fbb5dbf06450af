"""Plots in Python: an image for notebooks that contains a matplotlib figure."""

import sys

import pytest
from typer.testing import CliRunner

import cpsched_sim
from cpsched.errors import InvalidValue
from cpsched_sim.cli import app
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.errors import InputError
from cpsched_sim.report import charts

DRAWINGS = [cpsched_sim.draw_bars, cpsched_sim.draw_distributions, cpsched_sim.draw_utilization]


@pytest.fixture
def comparison(four_jobs):
    return cpsched_sim.compare(four_jobs, ["easy", "fcfs", "tests.bad_plugins:RaisingDispatcher"])


@pytest.mark.parametrize("draw", DRAWINGS)
def test_notebook_shows_comparison_and_simulation(four_jobs, comparison, tmp_path, draw):
    for results in (comparison, cpsched_sim.simulate(four_jobs)):
        picture = draw(results)
        assert picture._repr_png_().startswith(b"\x89PNG")
        assert picture.save(tmp_path / "picture.svg").read_text().startswith("<?xml")


def test_each_successful_combination_has_line(comparison):
    use = cpsched_sim.draw_utilization(comparison).figure.axes[1]
    assert [line.get_label() for line in use.lines] == ["easy/walltime", "fcfs/walltime"]


def test_usage_is_share_and_queue_is_number_of_jobs(four_jobs):
    waiting, use = cpsched_sim.draw_utilization(cpsched_sim.simulate(four_jobs, "fcfs")).figure.axes
    assert waiting.lines[0].get_ydata().tolist() == [0, 1, 2, 3, 0]  # submitted at 0, 1, 2, 3; all start by 100
    assert use.lines[0].get_ydata().max() == 1.0  # 2 + 1 + 1 of four processors from second 100 on


def test_account_shares_need_site_policy(comparison):
    with pytest.raises(InvalidValue, match="must be set in simulate or compare"):
        cpsched_sim.draw_account_shares(comparison)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_undrawable_input_is_input_error(four_jobs, mocker, draw):
    with pytest.raises(InvalidValue, match="results=list: must be a comparison or a simulation"):
        draw([1])
    with pytest.raises(InvalidValue, match="must contain at least one successful combination"):
        draw(cpsched_sim.compare(four_jobs, ["tests.bad_plugins:RaisingDispatcher"]))
    mocker.patch.dict("sys.modules", {"matplotlib": None})
    with pytest.raises(InputError, match=r"pip install 'cpsched\[report\]'"):
        draw(cpsched_sim.simulate(four_jobs))


def test_missing_matplotlib_names_package_to_install(mocker):
    mocker.patch.dict(sys.modules, {"matplotlib": None})
    with pytest.raises(InputError, match=r"cpsched\[report\]"):
        charts.require_matplotlib()


def test_plots_need_output_folder(tmp_path):
    result = CliRunner().invoke(app, ["compare", "x.swf", "--dispatcher", "easy", "--plots"])
    assert result.exit_code == 2
    assert "requires --out DIR" in result.stderr


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 2.0, 29.0], "linear"),
        ([1.0, 2.0, 70.0], "log"),
        ([0.0, 1.0, 2.0, 70.0], "symlog"),
        ([0.0, 0.0], "linear"),
        ([], "linear"),
    ],
)
def test_axis_is_logarithmic_if_one_bar_dominates(values, scale):
    assert charts.x_scale_arguments(values)["value"] == scale


def test_colour_shows_dispatcher_and_line_style_predictor():
    rows = [ComparisonRow(dispatcher, predictor) for dispatcher in ("a", "b") for predictor in ("x", "y")]
    styles = charts.line_styles(rows)
    assert [tuple(styles[row.name].values()) for row in rows] == [("C0", "-"), ("C0", "--"), ("C1", "-"), ("C1", "--")]


def test_escapes_names_for_matplotlib():
    assert [charts.escape_mathtext(name) for name in ("a/b", "$x$", "_y")] == ["a/b", r"\$x\$", "\u200b_y"]
