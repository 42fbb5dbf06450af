"""How waits went over the past day."""

from cpsched_bridge.watch.page.line_chart import line_chart
from cpsched_bridge.watch.page.trend import DAY_S, STEP_S, Trend
from tests.builders import a_job


def test_a_point_every_five_minutes_and_a_day_of_them():
    trend = Trend()
    for now_s in range(0, 2 * DAY_S, 30):
        trend.note(now_s, [0], 3, [])
    assert len(trend.points) == DAY_S // STEP_S + 1
    assert trend.points[-1].now_s - trend.points[0].now_s == DAY_S


def test_a_point_says_how_long_half_of_the_jobs_waited_and_half_of_those_that_started():
    trend = Trend()
    trend.note(1000, [], 0, [])
    trend.note(1010, [900], 0, [5, 7])
    trend.note(1000 + STEP_S, [1000, 1100, 1250], 4, [600])
    first, second = trend.points
    assert (first.queued, first.median_wait_s, first.started, first.median_start_wait_s) == (0, 0, 0, None)
    assert (second.queued, second.running, second.median_wait_s) == (3, 4, 200)
    assert (second.started, second.median_start_wait_s) == (3, 7)
    assert trend.present(2000, [], 0).started == 0, "each start counts once"


def test_starts_between_two_points_are_bounded():
    trend = Trend()
    trend.note(0, [], 0, [])
    trend.note(1, [], 0, range(100_000))
    assert trend.present(2, [], 0).started == 10_000


def test_the_view_ends_with_the_present(site):
    site.cluster.submit(a_job(1, units=3, per_unit=4), a_job(2, units=3, per_unit=4, submit_s=400))
    site.cycle(1000)
    site.cycle(1040)
    assert [(point.now_s, point.queued) for point in site.view.trend] == [(1000, 2), (1040, 1)]
    text = site.get("wall")[2]
    assert "Half of the queue has waited longer than <strong>10 min 40 s</strong>" in text
    assert "1 now, 2 at most in 40 s" in text


def test_a_line_says_in_words_what_it_shows_and_needs_two_points():
    svg = line_chart([(0, 1.0), (60, 4.0), (120, 2.0)], "Jobs <b>", lambda value: f"{value:.0f}")
    assert "Jobs &lt;b&gt;: 2 now, 4 at most in 2 min" in svg
    assert 'points="0.0,' in svg
    assert line_chart([(0, 1.0)], "Jobs", str) == ""
    assert "nan" not in line_chart([(0, 0.0), (0, 0.0)], "Jobs", str)
