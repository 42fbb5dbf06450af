"""Reports and notebook output: text is displayed literally, in Markdown and in HTML."""

from xml.etree import ElementTree

import pytest

import cpsched_sim
from cpsched_sim.errors import InputError
from cpsched_sim.report_document import (
    ReportFigure,
    ReportHeading,
    ReportList,
    ReportParagraph,
    ReportTable,
    render_markdown,
    render_page,
)
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


def test_simulation_shows_every_metric_with_formula(trace):
    result = cpsched_sim.simulate(trace)
    rows = {row[0]: row[1:] for row in cells(result._repr_html_())}
    assert set(rows) == {metric.heading for metric in cpsched_sim.METRICS}
    assert rows["mean wait"] == ["29.5", "s", "mean of W"]
    assert "&lt;b&gt;&amp;four.swf" in result._repr_html_()
    assert "<b>" not in result._repr_html_()


def test_comparison_shows_percentages_and_failed_row(trace):
    both = cpsched_sim.compare(trace, ["fcfs", "easy", "tests.bad_plugins:RaisingDispatcher"])
    first, second, failed = cells(both._repr_html_())
    heading = cells(both._repr_html_(), "th")[0]
    at = heading.index("mean wait s")
    assert (first[at : at + 2], second[at : at + 2]) == (["73.5", "100.0"], ["29.5", "40.1"])
    assert failed[:2] == ["tests.bad_plugins:RaisingDispatcher", "walltime"]
    assert "ZeroDivisionError" in failed[2]
    assert f'colspan="{len(heading) - 2}"' in both._repr_html_()


BLOCKS = [
    ReportHeading("<i> & more"),
    ReportParagraph("<script>", "verdict good", "Well."),
    ReportTable("[a](b)", ["<h>", "|"], [['"&<', "x|y"], ["`all`"]]),
    ReportList(["one\ntwo"]),
]


def test_markdown_report_escapes_text():
    assert (
        render_markdown("a_<b>", BLOCKS)
        == r"""# a_&lt;b>

## &lt;i> & more

**Well.** &lt;script>

\[a](b):

| &lt;h> | \| |
| --- | --- |
| "&&lt; | x\|y |
| 'all' |

- one\\ntwo
"""
    )


def test_html_report_escapes_text():
    text = render_page("a_<b>", BLOCKS)
    tree = ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))
    assert ["".join(each.itertext()) for each in tree.find("body").iter("h1")] == ["a_<b>"]
    (said,) = (each for each in tree.iter("p") if each.get("class") == "verdict good")
    assert "".join(said.itertext()) == "Well. <script>"
    assert cells(text.removeprefix("<!doctype html>")) == [['"&<', "x|y"], ["`all`"]]
    assert [each.get("colspan") for each in tree.iter("td")] == [None, None, "2"]
    assert [each.text for each in tree.iter("li")] == ["one\\ntwo"]


def test_picture_has_numbers_in_both_and_drawing_in_html_only():
    def cannot():
        raise InputError("no <matplotlib>")

    numbers = ReportTable("", ["x"], [["1"]])
    assert render_markdown("t", [ReportFigure(lambda: "<svg></svg>", numbers)]) == "# t\n\n| x |\n| --- |\n| 1 |\n"
    shown = ReportFigure(lambda: "<svg></svg>", numbers, is_open=True).html()
    assert shown.startswith("<figure><svg></svg></figure><details open")
    assert "<details><summary>" in ReportFigure(lambda: "", numbers).html()
    assert ReportFigure(cannot).html() == '<p class="quiet">no &lt;matplotlib&gt;</p>'


def test_long_table_is_complete_in_html_only():
    table = ReportTable("", ["x"], [[str(at)] for at in range(103)])
    assert table.markdown().splitlines()[-2:] == ["| 99 |", "| 3 more rows are on the HTML page |"]
    assert "<td>102</td>" in table.html()
