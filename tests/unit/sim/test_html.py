"""What a notebook shows of results: tables whose texts are shown as they are."""

from xml.etree import ElementTree

import pytest

import cpsched_sim
from cpsched_sim.html import table
from tests.unit.sim.test_cli import FOUR_JOBS


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "<b>&four.swf"
    path.write_text(FOUR_JOBS)
    return path


def cells(shown, kind="td"):
    """The texts of a table, row by row."""
    tree = ElementTree.fromstring(f"<div>{shown}</div>")
    return [
        ["".join(cell.itertext()) for cell in row.iter(kind)] for row in tree.iter("tr") if row.find(kind) is not None
    ]


def test_a_simulation_shows_every_metric_with_its_formula(trace):
    result = cpsched_sim.simulate(trace)
    rows = {row[0]: row[1:] for row in cells(result._repr_html_())}
    assert set(rows) == {metric.heading for metric in cpsched_sim.METRICS}
    assert rows["mean wait"] == ["29.5", "s", "mean of W"]
    assert "&lt;b&gt;&amp;four.swf" in result._repr_html_()
    assert "<b>" not in result._repr_html_()


def test_a_comparison_shows_percentages_and_which_row_failed(trace):
    both = cpsched_sim.compare(trace, ["fcfs", "easy", "tests.bad_plugins:RaisingDispatcher"])
    first, second, failed = cells(both._repr_html_())
    heading = cells(both._repr_html_(), "th")[0]
    at = heading.index("mean wait s")
    assert (first[at : at + 2], second[at : at + 2]) == (["73.5", "100.0"], ["29.5", "40.1"])
    assert failed[:2] == ["tests.bad_plugins:RaisingDispatcher", "walltime"]
    assert "ZeroDivisionError" in failed[2]
    assert f'colspan="{len(heading) - 2}"' in both._repr_html_()


def test_no_text_is_markup():
    shown = table("<i>", ["<script>"], [['"&<']], ["a < b"])
    assert cells(shown) == [['"&<']]
    assert "<script>" not in shown
    assert "<i>" not in shown
    assert "<p>a &lt; b</p>" in shown
