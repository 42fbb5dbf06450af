"""A hundred kills with everything going wrong around them."""

from collections import Counter

from tests.chaos.history import advised, beset, blinded, history_of, leaving
from tests.chaos.world import play

KILLS = 100
FIRST_SEED = 1


def test_a_hundred_kills_lose_repeat_and_strand_nothing():
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


def test_jobs_that_the_cluster_loses_sight_of_for_a_reading_are_neither_lost_nor_stranded():
    counts: Counter[str] = Counter()
    for seed in (*range(1, 9), 527):
        verdict = play(blinded(history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos --blind --seed {seed} --histories 1"
        counts += verdict.counts
    assert counts["lose sight"] > 10


def test_a_user_whose_jobs_never_start_keeps_nobody_elses_from_running():
    """In the midst of everything else that goes wrong; the calm that follows is as short as without that user."""
    counts: Counter[str] = Counter()
    for seed in range(1, 9):
        verdict = play(beset(history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos --beset --seed {seed} --histories 1"
        counts += verdict.counts
    assert counts["in vain"] > 200


def test_nodes_that_leave_take_along_only_what_was_on_its_way_or_ran_and_the_ledger_knows():
    """Never a job whose requeue the bridge has seen, and nothing that merely waits."""
    counts: Counter[str] = Counter()
    for seed in range(1, 9):
        verdict = play(leaving(history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos --leaving --seed {seed} --histories 1"
        counts += verdict.counts
    assert counts["given up"] > 10
    assert counts["requeue"] > 10


def test_an_adviser_that_is_killed_leaves_numbers_and_nobody_held():
    """Administrators' own points stay; from advise to control and back nothing is left of the other mode."""
    counts: Counter[str] = Counter()
    for seed in range(1, 13):
        verdict = play(advised(history_of(seed)))
        assert verdict.wrongs == [], f"python -m tests.chaos --advised --seed {seed} --histories 1"
        counts += verdict.counts
    assert counts["killed"] > 10
    assert counts["admin sets points"] > 10
    assert counts["change the mode"] > 10
