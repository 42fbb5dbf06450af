"""The rest between cycles: how long it is, in which slices, and when systemd hears of it."""

import pytest

from cpsched_bridge.cycle.rest import Rest
from cpsched_bridge.settings import CycleSettings
from tests.fakes import FakePace


class Service:
    """A service manager that notes when it was told what."""

    def __init__(self, pace):
        self.pace, self.words = pace, []

    def notify(self, *words):
        self.words.append((self.pace.at_s, words))


def a_rest(cycles=100, **settings):
    pace = FakePace(cycles=cycles, at_s=100.0)
    return Rest(CycleSettings(**settings), pace, Service(pace)), pace


@pytest.mark.parametrize(
    ("rest_s", "slices"),
    [
        (-3.0, [0.0]),
        (0.0, [0.0]),
        (1.0, [1.0]),
        (5.0, [5.0]),
        (5.5, [5.0, 0.5]),
        (10.0, [5.0, 5.0]),
        (12.0, [5.0, 5.0, 2.0]),
    ],
)
def test_a_rest_is_waited_for_in_slices_with_a_sign_of_life_before_each(rest_s, slices):
    """One at least: a cycle that took longer than its interval is followed by the next at once, but not unseen."""
    rest, pace = a_rest()
    assert rest.wait_until(100.0 + rest_s)
    assert pace.waited == slices
    starts = [100.0 + sum(slices[:i]) for i in range(len(slices))]
    assert rest.systemd.words == [(at_s, ("WATCHDOG=1",)) for at_s in starts]


@pytest.mark.parametrize("cycles", [1, 2])
def test_a_rest_ends_at_once_where_the_loop_is_to_end(cycles):
    rest, pace = a_rest(cycles)
    assert not rest.wait_until(112.0)
    assert pace.waited == [5.0] * cycles


@pytest.mark.parametrize(
    ("interval_s", "most_s", "failed", "pause_s"),
    [
        (2.0, 60.0, 0, 2.0),
        (2.0, 60.0, 1, 4.0),
        (2.0, 60.0, 4, 32.0),
        (2.0, 60.0, 5, 60.0),
        (2.0, 60.0, 10_000, 60.0),
        (20.0, 10.0, 0, 20.0),
        (20.0, 10.0, 3, 20.0),
    ],
)
def test_a_pause_doubles_with_each_failure_in_a_row_up_to_the_bound_but_not_below_the_interval(
    interval_s, most_s, failed, pause_s
):
    rest, _ = a_rest(interval_s=interval_s, max_backoff_s=most_s)
    for _ in range(failed):
        rest.note(False)
    assert rest.pause_s == pause_s
    rest.note(True)
    assert rest.pause_s == interval_s
