"""Test the bridge with a hundred kills and random faults."""

from collections import Counter

import pytest

from tests.chaos.history import advised, beset, blinded, history_of, leaving, preempting
from tests.chaos.world import play

KILLS = 100
FIRST_SEED = 1


def test_100_kills_lose_repeat_and_strand_no_job():
    counts: Counter[str] = Counter()
    seed = FIRST_SEED
    while counts["killed"] < KILLS:
        verdict = play(history_of(seed))
        assert verdict.wrongs == [], f"python -m tests.chaos --seed {seed} --histories 1"
        counts += verdict.counts
        seed += 1
    happened = {
        *("ok", "storage_error", "backend_timeout", "backend_unavailable", "command_refused", "cancel", "requeue"),
        *("requeue and hold", "owner holds", "admin holds", "cut the ledger", "restore the ledger", "stopped"),
        "released by hand",
    }
    assert happened <= set(counts), "the histories hit what they are to hit"
    assert counts["ok"] > 10 * counts["killed"]


@pytest.mark.parametrize(
    ("option", "change", "seeds", "least"),
    [
        # jobs that are missing from one reading are neither lost nor stranded
        ("--blind", blinded, (*range(1, 9), 527), {"lose sight": 10}),
        # a user whose jobs never start does not delay other users: the calm period is as short as without that user
        ("--beset", beset, range(1, 9), {"in vain": 200}),
        # nodes that leave fail only jobs that start or run on them, and the ledger records these jobs
        ("--leaving", leaving, range(1, 9), {"given up": 10, "requeue": 10}),
        # a bridge killed in mode advise leaves boosts and administrators' points, but no held job
        ("--advised", advised, range(1, 13), {"killed": 10, "admin sets points": 10, "change the mode": 10}),
        # a bridge that is killed while it preempts stops no job twice for a start, and starts each preemptor once
        ("--preempting", preempting, (*range(1, 13), 48), {"killed": 100, "preempted": 20}),
    ],
)
def test_other_histories_lose_repeat_and_strand_no_job(option, change, seeds, least):
    counts: Counter[str] = Counter()
    for seed in seeds:
        verdict = play(change(history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos {option} --seed {seed} --histories 1"
        counts += verdict.counts
    assert all(counts[kind] > number for kind, number in least.items())
