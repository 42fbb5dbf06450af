import sys

import pytest
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.comparison import ComparisonRow
from cpsched_sim.errors import InputError
from cpsched_sim.report import comparison_plots
from tests.unit.sim.test_cli import FOUR_JOBS


def test_draws_comparison(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    out = tmp_path / "out"
    arguments = ["compare", str(tmp_path / "four.swf"), "--dispatcher", "fcfs,easy", "--out", str(out), "--plots"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    for name in ("bars.png", "ecdf.png"):
        content = (out / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000


def test_missing_matplotlib_names_package_to_install(mocker):
    mocker.patch.dict(sys.modules, {"matplotlib": None})
    with pytest.raises(InputError, match=r"cpsched\[report\]"):
        comparison_plots.require_matplotlib()


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
    assert comparison_plots.x_scale_arguments(values)["value"] == scale


def test_colour_shows_dispatcher_and_line_style_predictor():
    rows = [ComparisonRow(dispatcher, predictor) for dispatcher in ("a", "b") for predictor in ("x", "y")]
    styles = comparison_plots.line_styles(rows)
    assert [tuple(styles[row.name].values()) for row in rows] == [("C0", "-"), ("C0", "--"), ("C1", "-"), ("C1", "--")]


def test_escapes_names_for_matplotlib():
    assert [comparison_plots.escape_mathtext(name) for name in ("a/b", "$x$", "_y")] == ["a/b", r"\$x\$", "\u200b_y"]
