import sys

import pytest
from typer.testing import CliRunner

from cpsched_sim.cli import app
from cpsched_sim.errors import Unusable
from cpsched_sim.report import plots
from tests.unit.sim.test_cli import FOUR_JOBS


def test_a_comparison_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "four.swf").write_text(FOUR_JOBS)
    out = tmp_path / "out"
    arguments = ["compare", str(tmp_path / "four.swf"), "--dispatchers", "fcfs,easy", "--out", str(out), "--plots"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    for name in ("bars.png", "ecdf.png"):
        content = (out / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) > 10_000


def test_without_matplotlib_it_says_what_to_install(mocker):
    mocker.patch.dict(sys.modules, {"matplotlib": None})
    with pytest.raises(Unusable, match=r"cpsched\[report\]"):
        plots.check()


def test_plots_need_a_folder(tmp_path):
    result = CliRunner().invoke(app, ["compare", "x.swf", "--dispatchers", "easy", "--plots"])
    assert result.exit_code == 2
    assert "needs --out DIR" in result.stderr
