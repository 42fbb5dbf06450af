"""The chart: correct bars, groups if there are many nodes, and never more than a screen can show."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from cpsched_bridge.views.status_view import GanttBar, GanttChartView, NodeOutageView
from cpsched_bridge.web.page.gantt_chart import (
    BARS_LEGEND,
    MAX_ROWS,
    SHARES_LEGEND,
    GanttLinkTargets,
    GanttWindow,
    assign_lanes,
    compute_group_usage,
    draw_gantt_svg,
    group_nodes,
)


def a_bar(id, begin_s, end_s, nodes=((0, 1),), kind="running", user="ada"):
    return GanttBar(id=id, label=str(id), user=user, kind=kind, begin_s=begin_s, end_s=end_s, nodes=list(nodes))


def a_chart(*bars, nodes=2, now_s=1000, outages=()):
    names = [f"n{i}" for i in range(nodes)]
    return GanttChartView(
        now_s=now_s, node_names=names, processors=[4] * nodes, unavailable=[], outages=list(outages), bars=list(bars)
    )


def an_outage(from_s, to_s, nodes=(0,), kind="reserved", name="update"):
    return NodeOutageView(kind=kind, name=name, nodes=list(nodes), from_s=from_s, to_s=to_s)


def hatched(svg):
    """(left, right, top, title) of what is hatched node by node."""
    svg_ = "{http://www.w3.org/2000/svg}"
    found = [rect for rect in ElementTree.fromstring(svg).iter(f"{svg_}rect") if rect.get("class") == "g-out"]
    x = [(float(rect.get("x")), float(rect.get("width"))) for rect in found]
    return [
        (left, left + wide, float(rect.get("y")), rect.find(f"{svg_}title").text)
        for rect, (left, wide) in zip(found, x, strict=True)
    ]


def rectangles(svg):
    """(x, y, width, height) by job id."""
    found = {}
    for rect in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"):
        title = rect.find("{http://www.w3.org/2000/svg}title")
        if title is not None and title.text.startswith("job "):
            place = tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))
            found.setdefault(int(title.text.split()[1]), []).append(place)
    return found


def test_bars_are_at_their_time_and_node():
    chart = a_chart(a_bar(1, 900, 1100), a_bar(2, 1050, 1200, [(1, 1)], "planned"))
    window = GanttWindow.around_now(chart, 100, 300)
    found = rectangles(draw_gantt_svg(chart, window, alone=True))
    (one,), (two,) = found[1], found[2]
    assert one[0] == pytest.approx(window.x(900), abs=0.1)
    assert one[0] + one[2] == pytest.approx(window.x(1100), abs=0.1)
    assert two[0] == pytest.approx(window.x(1050), abs=0.1)
    assert two[1] > one[1] + one[3], "the second node is below the first"


def test_job_on_two_nodes_has_two_bars_without_overlap():
    chart = a_chart(a_bar(1, 900, 1100, [(0, 1), (1, 2)]), a_bar(2, 950, 1100))
    found = rectangles(draw_gantt_svg(chart, GanttWindow.around_now(chart, 100, 300), alone=True))
    assert len(found[1]) == 2
    first, second = found[1][0], found[2][0]
    assert first[1] + first[3] <= second[1] or second[1] + second[3] <= first[1]


def test_height_of_bar_is_its_share_of_processors():
    """56 and 16 of 100 processors, as on a pool, do not fill the row."""
    chart = a_chart(a_bar(1, 900, 1100, [(0, 56)]), a_bar(2, 950, 1100, [(0, 16)]), a_bar(3, 1100, 1200, [(0, 100)]))
    chart.processors[0] = 100
    window = GanttWindow.around_now(chart, 100, 300)
    found = rectangles(draw_gantt_svg(chart, window, alone=True))
    heights = [found[id][0][3] for id in (1, 2, 3)]
    assert heights == pytest.approx([window.row_height * share for share in (0.56, 0.16, 1.0)], abs=1)
    assert found[1][0][1] + heights[0] <= found[2][0][1], "the second job is below the first"


def test_lanes_of_bar_are_adjacent_if_possible():
    bars = [(0, 10, 2), (0, 30, 1), (0, 10, 1), (10, 20, 2), (10, 20, 1), (20, 30, 3)]
    assert assign_lanes(bars, 4) == [[(0, 2)], [(2, 1)], [(3, 1)], [(0, 2)], [(3, 1)], [(0, 2), (3, 1)]]
    assert assign_lanes([(0, 10, 2), (5, 10, 2)], 3) == [[(0, 2)], [(0, 1), (2, 1)]], "more than there is"
    assert assign_lanes([], 4) == []


def test_file_says_what_it_draws():
    """A drawing with too many bars shows shares, which look like jobs."""
    bars = [a_bar(id, 900 + id % 50, 1100) for id in range(4001)]
    for chart, legend in ((a_chart(*bars[:4000]), BARS_LEGEND), (a_chart(*bars), SHARES_LEGEND)):
        svg = draw_gantt_svg(chart, GanttWindow.around_now(chart, 100, 300), alone=True, title="A day: 4 jobs")
        shown = [text.text for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
        assert shown[:2] == ["A day: 4 jobs", legend]


def test_clips_bars_to_window():
    chart = a_chart(a_bar(1, 0, 5000), a_bar(2, 0, 800), a_bar(3, 2000, 3000, kind="planned"))
    window = GanttWindow.around_now(chart, 100, 300)
    found = rectangles(draw_gantt_svg(chart, window, alone=True))
    assert (set(found), found[1][0][0]) == ({1}, pytest.approx(window.x(900), abs=0.1))
    assert found[1][0][0] + found[1][0][2] == pytest.approx(window.x(1300), abs=0.1)


def test_draws_many_nodes_in_linked_groups():
    chart = a_chart(
        *(a_bar(n, 900, 1100, [(n, 1)]) for n in range(1000)), nodes=1000, outages=[an_outage(900, None, [7])]
    )
    window = GanttWindow.around_now(chart, 100, 300)
    svg = draw_gantt_svg(
        chart, window, GanttLinkTargets(nodes=lambda first, last: f"?first={first}&last={last}"), alone=True
    )
    ElementTree.fromstring(svg)
    assert len(group_nodes(window)) <= MAX_ROWS
    assert svg.count("<path") + svg.count("<rect") < 300
    assert 'href="?first=0&amp;last=16"' in svg
    zoomed = GanttWindow.around_now(chart, 100, 300, 16, 32)
    assert set(rectangles(draw_gantt_svg(chart, zoomed, alone=True))) == set(range(16, 32))


def test_group_usage_is_share_of_processors_in_use():
    chart = a_chart(a_bar(1, 900, 1100, [(0, 3), (1, 4)]), a_bar(2, 900, 1000, [(0, 1)]), nodes=4)
    window = GanttWindow(900, 1300, 0, 4)
    spans = [(bar.begin_s, bar.end_s, bar.nodes) for bar in chart.bars]
    (shares,) = compute_group_usage(spans, window, [(0, 4)], chart.processors)
    assert np.allclose(shares[:74], 8 / 16)
    assert np.allclose(shares[76:149], 7 / 16)
    assert np.allclose(shares[151:], 0.0)


def test_hatches_unavailable_nodes():
    """A future maintenance has both ends; a drained node is hatched to the edge, since its end is unknown."""
    chart = a_chart(outages=[an_outage(1100, 1200), an_outage(1000, None, [1], "drained", "IDLE+DRAIN")])
    window = GanttWindow.around_now(chart, 100, 300)
    to_come, now = hatched(draw_gantt_svg(chart, window, alone=True))
    assert to_come[:2] == pytest.approx((window.x(1100), window.x(1200)), abs=0.1)
    assert now[:2] == pytest.approx((window.x(1000), window.x(window.to_s)), abs=0.1)
    assert now[2] > to_come[2], "each on its own node"
    assert (to_come[3], now[3]) == ("reserved update", "drained IDLE+DRAIN")
    assert "2 of the nodes drained, down or reserved for a time" in draw_gantt_svg(chart, window)


def test_does_not_hatch_outages_outside_window():
    chart = a_chart(outages=[an_outage(500, 900), an_outage(1300, 1400)])
    assert hatched(draw_gantt_svg(chart, GanttWindow.around_now(chart, 100, 300), alone=True)) == []


def test_hatches_groups_by_share_of_unavailable_nodes():
    chart = a_chart(nodes=640, outages=[an_outage(1100, 1200, range(5))])
    svg = draw_gantt_svg(chart, GanttWindow.around_now(chart, 100, 300), alone=True)
    (path,) = [each for each in ElementTree.fromstring(svg).iter() if each.get("class") == "g-out"]
    window = GanttWindow.around_now(chart, 100, 300)
    xs = [float(x) for x in re.findall(r"H([\d.]+)", path.get("d"))]
    assert (xs[0], xs[-2]) == (pytest.approx(window.x(1100), abs=4), pytest.approx(window.x(1200), abs=4))
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path.get("d"))]
    assert max(heights) - min(heights) == pytest.approx(window.row_height / 2, abs=0.1), (
        "five of the ten nodes of the first group"
    )


@pytest.mark.parametrize(
    "chart", [a_chart(a_bar(1, 900, 1100, user='<b>"&')), a_chart(outages=[an_outage(900, 1100, name='<b>"&')])]
)
def test_escapes_names(chart):
    svg = draw_gantt_svg(chart, GanttWindow.around_now(chart, 100, 300), alone=True)
    assert "<b>" not in svg
    ElementTree.fromstring(svg)


def test_describes_chart_in_text():
    chart = a_chart(a_bar(1, 900, 1100), a_bar(2, 1100, 1200, kind="planned"))
    label = re.search(r'aria-label="([^"]*)"', draw_gantt_svg(chart, GanttWindow.around_now(chart, 3600, 3600)))[1]
    assert "1 job running, 1 planned, 0 ended" in label
