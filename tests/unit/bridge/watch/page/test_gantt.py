"""The drawing: bars where they belong, groups where there are many nodes, and never more than a screen can show."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from cpsched_bridge.watch.page.gantt import MOST_ROWS, Links, Window, draw, groups, lanes_of, use_of
from cpsched_bridge.watch.page.pages import clock
from cpsched_bridge.watch.page.schema import Bar, Chart
from cpsched_bridge.watch.page.words import change, from_now, span


def a_bar(id, begin_s, end_s, nodes=((0, 1),), kind="running", user="ada"):
    return Bar(id=id, label=str(id), user=user, kind=kind, begin_s=begin_s, end_s=end_s, nodes=list(nodes))


def a_chart(*bars, nodes=2, now_s=1000, unavailable=()):
    names = [f"n{i}" for i in range(nodes)]
    return Chart(now_s=now_s, node_names=names, unavailable=list(unavailable), bars=list(bars))


def rectangles(svg):
    """(x, y, width, height) by job id."""
    found = {}
    for rect in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect"):
        title = rect.find("{http://www.w3.org/2000/svg}title")
        if title is not None and title.text.startswith("job "):
            place = tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))
            found.setdefault(int(title.text.split()[1]), []).append(place)
    return found


def test_bars_stand_at_their_time_and_node():
    chart = a_chart(a_bar(1, 900, 1100), a_bar(2, 1050, 1200, [(1, 1)], "planned"))
    window = Window.around(chart, 100, 300)
    found = rectangles(draw(chart, window, alone=True))
    (one,), (two,) = found[1], found[2]
    assert one[0] == pytest.approx(window.x(900), abs=0.1)
    assert one[0] + one[2] == pytest.approx(window.x(1100), abs=0.1)
    assert two[0] == pytest.approx(window.x(1050), abs=0.1)
    assert two[1] > one[1] + one[3], "the second node is below the first"


def test_a_job_on_two_nodes_is_on_both_and_jobs_beside_each_other_do_not_overlap():
    chart = a_chart(a_bar(1, 900, 1100, [(0, 1), (1, 2)]), a_bar(2, 950, 1100))
    found = rectangles(draw(chart, Window.around(chart, 100, 300), alone=True))
    assert len(found[1]) == 2
    first, second = found[1][0], found[2][0]
    assert first[1] + first[3] <= second[1] or second[1] + second[3] <= first[1]


def test_lanes_are_counted_anew_after_a_pause():
    bars = [a_bar(1, 0, 10), a_bar(2, 5, 15), a_bar(3, 10, 20), a_bar(4, 20, 30)]
    assert lanes_of(bars) == [(0, 2), (1, 2), (0, 2), (0, 1)]
    assert lanes_of([]) == []


def test_bars_are_cut_to_the_window_and_those_outside_are_left_out():
    chart = a_chart(a_bar(1, 0, 5000), a_bar(2, 0, 800), a_bar(3, 2000, 3000, kind="planned"))
    window = Window.around(chart, 100, 300)
    found = rectangles(draw(chart, window, alone=True))
    assert set(found) == {1}
    assert found[1][0][0] == pytest.approx(window.x(900), abs=0.1)
    assert found[1][0][0] + found[1][0][2] == pytest.approx(window.x(1300), abs=0.1)


def test_many_nodes_are_drawn_in_groups_with_links_to_their_nodes():
    chart = a_chart(*(a_bar(n, 900, 1100, [(n, 1)]) for n in range(1000)), nodes=1000, unavailable=[7])
    window = Window.around(chart, 100, 300)
    svg = draw(chart, window, Links(nodes=lambda first, last: f"?first={first}&last={last}"), alone=True)
    ElementTree.fromstring(svg)
    assert len(groups(window)) <= MOST_ROWS
    assert svg.count("<path") + svg.count("<rect") < 300
    assert 'href="?first=0&amp;last=16"' in svg
    zoomed = Window.around(chart, 100, 300, 16, 32)
    assert set(rectangles(draw(chart, zoomed, alone=True))) == set(range(16, 32))


def test_the_use_of_a_group_is_the_share_of_its_busy_nodes():
    chart = a_chart(a_bar(1, 900, 1100, [(0, 1), (1, 1)]), a_bar(2, 900, 1000), nodes=4)
    window = Window(900, 1300, 0, 4)
    shares = use_of(chart.bars, window, [(0, 4)], ("running",))[0]
    assert np.allclose(shares[:149], 0.5), "two jobs on one node count once"
    assert np.allclose(shares[151:], 0.0)


def test_names_of_users_are_escaped():
    svg = draw(a_chart(a_bar(1, 900, 1100, user='<b>"&')), Window.around(a_chart(), 100, 300), alone=True)
    assert "<b>" not in svg
    ElementTree.fromstring(svg)


def test_it_says_in_words_what_it_shows():
    chart = a_chart(a_bar(1, 900, 1100), a_bar(2, 1100, 1200, kind="planned"))
    label = re.search(r'aria-label="([^"]*)"', draw(chart, Window.around(chart, 3600, 3600)))[1]
    assert "1 jobs running, 1 planned, 0 ended" in label


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (7500, "2 h 05 min"),
        (90000, "1 d 1 h"),
        (-5, "-5 s"),
    ],
)
def test_spans(seconds, words):
    assert span(seconds) == words


def test_the_clock_is_of_day_beside_a_real_cluster_and_counts_days_in_a_simulated_one():
    assert clock(1_795_274_468, 1_795_274_470.5) == "2026-11-21 15:21:08 UTC"
    assert clock(90_061, 1_795_274_470.5) == "day 1, 01:01:01"
    assert clock(40_000, 0.0) == "day 0, 11:06:40"


def test_instants_and_changes():
    assert [from_now(at_s, 100) for at_s in (100, 160, 40)] == ["now", "in 1 min", "1 min ago"]
    assert change(160, 100) == "1 min later"
    assert change(40, 100) == "1 min earlier"
    assert change(100, 100) == change(None, 100) == change(100, None) == ""
