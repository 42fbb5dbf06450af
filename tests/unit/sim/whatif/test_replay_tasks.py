"""Replays are found again by all that they depend on, and by nothing else."""

import numpy as np

from cpsched_sim.whatif.case_comparison import HALF_CLOSED, OPEN
from cpsched_sim.whatif.replay_tasks import WindowReplayRunner, _packed, _read, tasks_of
from cpsched_sim.whatif.stranded_capacity import CAUSES
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.window_replay import WindowReplayResult

DIGESTS = {"input_sha256": "a", "from_s": 1}


def digests_of(text, digests=DIGESTS, seeds=2, sessions=True):
    return [task.digest(digests) for task in tasks_of([WhatIfCase.parse(text)], seeds, sessions)]


def test_each_seed_is_replayed_openly_and_the_first_with_users_who_react():
    tasks = tasks_of([WhatIfCase.parse("lookahead"), WhatIfCase.parse("easy")], 2, True)
    assert [(task.spec.dispatcher, task.spec.dispatcher_settings.get("seed"), task.mode) for task in tasks] == [
        ("lookahead", "0", OPEN), ("lookahead", "1", OPEN), ("lookahead", "0", HALF_CLOSED), ("easy", None, OPEN),
        ("easy", None, HALF_CLOSED),
    ]  # fmt: skip
    assert len(digests_of("lookahead", sessions=False)) == 2


def test_a_name_is_the_same_for_the_same_and_another_for_anything_else():
    known = digests_of("lookahead")
    assert known == digests_of("'lookahead'"), "another spelling of it"
    others = [
        *digests_of("easy"), *digests_of("lookahead", {**DIGESTS, "from_s": 2}), *digests_of("lookahead walltimes=0.5"),
        *digests_of("lookahead / quantile"), *digests_of("lookahead objective=slowdown"), *digests_of("control"),
        *digests_of("lookahead lag=1"), *digests_of("control lag=1"), *digests_of("control interval=5"),
    ]  # fmt: skip
    assert len({*known, *others}) == len(known) + len(others)


def test_a_policy_counts_with_the_dumps_that_it_names(tmp_path):
    (tmp_path / "policy.yaml").write_text("dumps: { shares: shares.txt }\n")
    names = []
    for used in (1, 2):
        (tmp_path / "shares.txt").write_text(f"Account|User|RawUsage\nphys|ada|{used}\n")
        names += digests_of(f"policy={tmp_path / 'policy.yaml'}", sessions=False)
    assert len(set(names)) == 2


def test_what_is_kept_is_what_was_made_and_what_is_damaged_was_never_made(tmp_path):
    columns = [np.arange(3, dtype=np.int64) + at for at in range(4)]
    path = tmp_path / "one.npz"
    empty = np.arange(2.0 * len(CAUSES)).reshape(2, -1)
    path.write_bytes(_packed(WindowReplayResult(*columns, rounds=7, cpu_s=0.5, late_fixed=2, stranded=empty)))
    found = _read(path, 3)
    assert found is not None
    assert (found.rounds, found.cpu_s, found.late_fixed) == (7, 0.5, 2)
    assert [found.arrival_s[0], found.start_s[0], found.end_s[0], found.processors[0]] == [0, 1, 2, 3]
    assert np.array_equal(found.stranded, empty)
    assert _read(path, 4) is None, "of another window"
    path.write_bytes(path.read_bytes()[:100])
    assert _read(path, 3) is None
    assert _read(tmp_path / "nothing.npz", 3) is None


def test_nothing_is_replayed_where_all_is_done(tmp_path):
    tasks = tasks_of([WhatIfCase.parse("easy")], 1, False)
    told = []
    WindowReplayRunner(None, tmp_path, DIGESTS).run(tasks, {0: None}, lambda done, of: told.append((done, of)))
    assert not (tmp_path / "replays").exists()
