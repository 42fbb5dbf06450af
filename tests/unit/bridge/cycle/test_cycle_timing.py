"""The pause between cycles: its length, its parts, and the notifications to systemd."""

import os

import pytest

from cpsched_bridge.cycle.cycle_recorder import CycleRecorder
from cpsched_bridge.cycle.cycle_timing import INTERRUPTED_S, CycleTiming
from cpsched_bridge.settings import CycleSettings
from tests.fakes import FakePace


def a_recorder():
    return CycleRecorder(1, FakePace())


class Service:
    """A service manager that records its messages with their times."""

    def __init__(self, pace):
        self.pace, self.words = pace, []

    def notify(self, *words):
        self.words.append((self.pace.at_s, words))


def a_rest(cycles=100, **settings):
    pace = FakePace(cycles=cycles, at_s=100.0)
    timing = CycleTiming(CycleSettings(**settings), pace, Service(pace))
    timing.begin(a_recorder())
    return timing, pace


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
def test_waits_in_slices_with_watchdog_before_each(rest_s, slices):
    """One at least: a cycle that took longer than its interval is followed by the next at once, but not unseen."""
    rest, pace = a_rest(interval_s=12.0)
    pace.at_s += 12.0 - rest_s
    began_s = pace.at_s
    assert rest.wait()
    assert pace.waited == slices
    starts = [began_s + sum(slices[:i]) for i in range(len(slices))]
    assert rest.systemd.words == [(at_s, ("WATCHDOG=1",)) for at_s in starts]


@pytest.mark.parametrize("cycles", [1, 2])
def test_wait_ends_at_once_when_loop_stops(cycles):
    rest, pace = a_rest(cycles, interval_s=12.0)
    assert not rest.wait()
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
def test_interval_doubles_with_failures_up_to_bound(interval_s, most_s, failed, pause_s):
    rest, _ = a_rest(interval_s=interval_s, max_backoff_s=most_s)
    for _ in range(failed):
        rest.end("backend_error")
    assert rest.cycle_interval_s == pause_s
    rest.end("ok")
    assert rest.cycle_interval_s == interval_s


# A busy cluster


def read(rest, busy="", reading_s=0.1):
    """Report a reading, and return the events."""
    recorder = a_recorder()
    recorder.seconds["observe"] = reading_s
    rest.update_interval_by_load(busy, recorder)
    return [(each.kind, each.detail) for each in recorder.bridge_events]


def test_interval_doubles_while_cluster_is_busy_then_halves():
    rest, _ = a_rest(interval_s=2.0, max_interval_factor=5)
    found = [(read(rest, busy), rest.cycle_interval_s, rest.is_slowed) for busy in ["much to do"] * 4 + [""] * 4]
    assert found == [
        ([("interval_extended", "one cycle every 4 s: much to do")], 4.0, True),
        ([], 8.0, True),
        ([], 10.0, True),
        ([], 10.0, True),
        ([], 5.0, True),
        ([], 2.5, True),
        ([("interval_restored", "one cycle every 2 s again")], 2.0, False),
        ([], 2.0, False),
    ], "each change is reported once"


@pytest.mark.parametrize(("reading_s", "pause_s"), [(0.5, 1.0), (0.6, 1.2), (3.0, 5.0)])
def test_reading_takes_at_most_half_of_time(reading_s, pause_s):
    rest, _ = a_rest(interval_s=1.0)
    events = read(rest, reading_s=reading_s)
    assert rest.cycle_interval_s == pytest.approx(pause_s)
    assert events == (
        [("interval_extended", "one cycle every 5 s: reading the cluster took 3.0 s")] if pause_s == 5.0 else []
    )


def test_never_reports_slowdown_if_disabled():
    rest, _ = a_rest(interval_s=1.0, max_interval_factor=1)
    events = read(rest, "much to do", reading_s=9.0)
    assert (rest.cycle_interval_s, rest.is_slowed, events) == (1.0, False, [])


def test_failed_cycle_keeps_interval_of_busy_cluster():
    rest, _ = a_rest(interval_s=1.0, max_interval_factor=5, max_backoff_s=2.0)
    for _ in range(3):
        read(rest, "much to do")
    rest.end("backend_error")
    assert rest.cycle_interval_s == 5.0


# Wake files


@pytest.fixture
def wake_file(tmp_path):
    return tmp_path / "wake"


class Touching(FakePace):
    """A pace in whose wait number `at` something happens."""

    def __init__(self, at, happen):
        super().__init__(cycles=1000, at_s=100.0)
        self.at, self.happen = at, happen

    def wait(self, seconds):
        if len(self.waited) == self.at:
            self.happen()
        return super().wait(seconds)


def woken(wake_file, at, happen, prepare=lambda rest: None, **settings):
    """When a rest of ten seconds ended, in which something happens after `at` looks."""
    pace = Touching(at, happen)
    rest = CycleTiming(CycleSettings(interval_s=10.0, trigger_files=[wake_file], **settings), pace, Service(pace))
    rest.begin(a_recorder())
    prepare(rest)
    assert rest.wait()
    return pace.at_s - 100.0, rest


@pytest.mark.parametrize(("at", "ended_s"), [(0, 1.0), (5, 1.0), (30, 3.2), (98, 10.0)])
def test_new_wake_file_starts_cycle_after_minimum_gap(wake_file, at, ended_s):
    assert woken(wake_file, at, wake_file.touch)[0] == pytest.approx(ended_s)


def test_rewrite_and_removal_of_wake_file_are_changes(wake_file):
    wake_file.write_text("changed\n")
    os.utime(wake_file, ns=(1, 1))
    assert woken(wake_file, 30, lambda: wake_file.write_text("changed\n"))[0] < 4
    assert woken(wake_file, 30, wake_file.unlink)[0] < 4


def test_change_during_cycle_starts_next_one(wake_file):
    pace = FakePace(cycles=1000, at_s=100.0)
    rest = CycleTiming(CycleSettings(interval_s=10.0, trigger_files=[wake_file]), pace, Service(pace))
    rest.begin(a_recorder())
    pace.at_s += 4.0
    wake_file.touch()
    assert rest.wait()
    assert pace.at_s == pytest.approx(104.2)


def test_wake_file_is_ignored_after_failure_or_while_busy(wake_file):
    assert woken(wake_file, 5, wake_file.touch, lambda rest: rest.end("failed"))[0] == pytest.approx(20.0)
    assert woken(wake_file, 5, wake_file.unlink, lambda rest: read(rest, "much to do"))[0] == pytest.approx(20.0)


def test_wait_without_change_is_full_with_watchdog(wake_file):
    ended_s, rest = woken(wake_file, 1000, wake_file.touch)
    assert ended_s == pytest.approx(10.0)
    assert [at_s - 100 for at_s, _ in rest.systemd.words] == pytest.approx([0.0, 5.0], abs=0.2)


# The dead-man timer


@pytest.mark.parametrize(
    ("heartbeat_age_s", "was"),
    [(None, True), (0.0, False), (INTERRUPTED_S - 1, False), (INTERRUPTED_S, True), (-INTERRUPTED_S, True)],
)
def test_new_bridge_uses_previous_heartbeat(heartbeat_age_s, was):
    pace = FakePace(at_s=1000.0)
    assert CycleTiming(CycleSettings(), pace, Service(pace), heartbeat_age_s).may_dead_man_have_released_jobs == was


def test_interruption_lasts_after_next_successful_cycle():
    timing, pace = a_rest()
    back_s = 2 * INTERRUPTED_S - 1
    for at_s, ends_well, is_interrupted in (
        (INTERRUPTED_S - 1, True, False),
        (back_s - 1, False, False),
        (back_s, False, True),
        (back_s, True, True),
        (back_s + INTERRUPTED_S - 1, True, True),
        (back_s + INTERRUPTED_S, False, False),
    ):
        pace.at_s = 100.0 + at_s
        if ends_well:
            timing.end("ok")
        assert timing.may_dead_man_have_released_jobs == is_interrupted, at_s
