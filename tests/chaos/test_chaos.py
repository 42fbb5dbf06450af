"""Test the bridge with random kills and faults: twenty kills, and more of them as slow tests."""

from collections import Counter

import pytest

from tests.chaos.history import CHANGES, history_of
from tests.chaos.world import play


def test_20_kills_lose_repeat_and_strand_no_job():
    kill(20)


@pytest.mark.slow
def test_100_kills_lose_repeat_and_strand_no_job():
    counts = kill(100)
    happened = {
        *("ok", "storage_error", "backend_timeout", "backend_unavailable", "command_refused", "cancel", "requeue"),
        *("requeue and hold", "owner holds", "admin holds", "cut the ledger", "restore the ledger", "stopped"),
        "released by hand",
    }
    assert happened <= set(counts), "the histories hit what they are to hit"
    assert counts["ok"] > 10 * counts["killed"]


def kill(number: int) -> Counter[str]:
    """Return what happened in the histories of seeds 1, 2, ... until the bridge was killed that often."""
    counts: Counter[str] = Counter()
    seed = 1
    while counts["killed"] < number:
        verdict = play(history_of(seed))
        assert verdict.wrongs == [], f"python -m tests.chaos --seed {seed} --histories 1"
        counts += verdict.counts
        seed += 1
    return counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "seeds", "least"),
    [
        # jobs that are missing from one reading are neither lost nor stranded
        ("blind", (*range(1, 9), 527), {"lose sight": 10}),
        # a user whose jobs never start does not delay other users: the calm period is as short as without that user
        ("beset", range(1, 9), {"without result": 200}),
        # nodes that leave fail only jobs that start or run on them, and the ledger records these jobs
        ("leaving", range(1, 9), {"given up": 10, "requeue": 10}),
        # a bridge killed in mode advise leaves boosts and administrators' points, but no held job
        ("advised", range(1, 13), {"killed": 10, "admin sets points": 10, "change the mode": 10}),
        # a bridge that is killed while it preempts stops no job twice for a start, and starts each preemptor once
        ("preempting", (*range(1, 13), 48), {"killed": 100, "preempted": 20}),
    ],
)
def test_other_histories_lose_repeat_and_strand_no_job(option, seeds, least):
    counts: Counter[str] = Counter()
    for seed in seeds:
        verdict = play(CHANGES[option](history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos --{option} --seed {seed} --histories 1"
        counts += verdict.counts
    assert all(counts[kind] > number for kind, number in least.items())


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_one_other_history_loses_repeats_and_strands_no_job(change):
    assert play(change(history_of(1))).wrongs == []
