"""Times without a zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from cpsched_sim.traces.slurm_times import possible_unix_times_s, resolve_ambiguous_times

BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = datetime(2026, 10, 24, 22, tzinfo=UTC)
"""Three hours before the clock of Berlin went back."""


def test_time_is_unique_except_in_repeated_hour():
    first, second = possible_unix_times_s("2026-10-25T02:30:00", BERLIN)
    assert second - first == 3600
    assert (
        len(possible_unix_times_s("2026-10-25T03:00:00", BERLIN))
        == len(possible_unix_times_s("2026-10-25T01:59:59", BERLIN))
        == 1
    )


def test_words_for_missing_time_give_none():
    assert {possible_unix_times_s(word, UTC) for word in ("", "Unknown", "NONE", "N/A", "-")} == {()}


def local(seconds):
    return (AUTUMN + timedelta(seconds=seconds)).astimezone(BERLIN).strftime("%Y-%m-%dT%H:%M:%S")


@given(st.integers(0, 14400), st.integers(0, 14400), st.integers(1, 14400))
def test_clock_change_night_is_resolved_if_possible(submit, wait_s, run_s):
    """What Elapsed and the order leave open is one of the possible pasts; what they do not is the true one."""
    true = [submit, submit + wait_s, submit + wait_s + run_s]
    times, certain = resolve_ambiguous_times([possible_unix_times_s(local(at), BERLIN) for at in true], run_s)
    found = [at - int(AUTUMN.timestamp()) for at in times]
    assert found[2] - found[1] == run_s
    assert found[0] <= found[1]
    assert not certain or found == true


def test_first_meaning_counts_if_none_is_possible():
    assert resolve_ambiguous_times([(10,), (5, 8), (4,)], None) == ([10, 5, 4], False)


def test_unknown_time_stays_unknown():
    assert resolve_ambiguous_times([(1,), (), (5, 9)], None) == ([1, None, 5], False)
