"""Stored replays are reused if and only if all their inputs are the same."""

from types import SimpleNamespace

import numpy as np
import pytest

from cpsched_sim.experiments.case_store import CaseStore
from cpsched_sim.whatif.case_comparison import HALF_CLOSED_MODEL, OPEN_MODEL
from cpsched_sim.whatif.replay_runner import (
    PREEMPTION_FIGURES,
    REPLAYS_FOLDER,
    WhatIfReplayRunner,
    build_replay_tasks,
    replay_format,
)
from cpsched_sim.whatif.unused_capacity_causes import CAUSES
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import WindowReplayResult

DIGESTS = {"input_sha256": "a", "from_s": 1}


def digests_of(text, digests=DIGESTS, seeds=2, sessions=True):
    return [task.key(digests) for task in build_replay_tasks([WhatIfCase.parse(text)], seeds, sessions)]


def test_replays_each_seed_open_and_first_half_closed():
    tasks = build_replay_tasks([WhatIfCase.parse("lookahead"), WhatIfCase.parse("easy")], 2, True)
    assert [(task.spec.dispatcher, task.spec.dispatcher_settings.get("seed"), task.mode) for task in tasks] == [
        ("lookahead", "0", OPEN_MODEL), ("lookahead", "1", OPEN_MODEL),
        ("lookahead", "0", HALF_CLOSED_MODEL), ("easy", None, OPEN_MODEL),
        ("easy", None, HALF_CLOSED_MODEL),
    ]  # fmt: skip
    assert len(digests_of("lookahead", sessions=False)) == 2


def test_digest_changes_with_each_input():
    known = digests_of("lookahead")
    assert known == digests_of("'lookahead'"), "another spelling of it"
    others = [
        *digests_of("easy"), *digests_of("lookahead", {**DIGESTS, "from_s": 2}), *digests_of("lookahead walltimes=0.5"),
        *digests_of("lookahead / quantile"), *digests_of("lookahead objective=slowdown"), *digests_of("control"),
        *digests_of("lookahead lag=1"), *digests_of("control lag=1"), *digests_of("control interval=5"),
    ]  # fmt: skip
    assert len({*known, *others}) == len(known) + len(others)


def test_digest_includes_policy_dumps(tmp_path):
    (tmp_path / "policy.yaml").write_text("dumps: { shares: shares.txt }\n")
    names = []
    for used in (1, 2):
        (tmp_path / "shares.txt").write_text(f"Account|User|RawUsage\nphys|ada|{used}\n")
        names += digests_of(f"policy={tmp_path / 'policy.yaml'}", sessions=False)
    assert len(set(names)) == 2


def test_stored_replay_is_read_back_and_damaged_one_rejected():
    columns = [np.arange(3, dtype=np.int64) + at for at in range(4)]
    empty = np.arange(2.0 * len(CAUSES)).reshape(2, -1)
    counts = {name: float(at) for at, name in enumerate(PREEMPTION_FIGURES)}
    stored = replay_format(3)
    for preemption in (counts, {}):
        content = stored.encode(WindowReplayResult(*columns, 7, 0.5, 2, empty, 0.25, preemption))
        found = stored.decode(content)
        assert (found.rounds, found.cpu_s, found.late_fixed, found.preemption) == (7, 0.5, 2, preemption)
        assert found.stranded_gpus == 0.25
        assert [found.arrival_s[0], found.start_s[0], found.end_s[0], found.processors[0]] == [0, 1, 2, 3]
        assert np.array_equal(found.stranded, empty)
    with pytest.raises(ValueError, match="must have 4 jobs"):  # of another window
        replay_format(4).decode(content)
    narrow = stored.encode(WindowReplayResult(*columns, 7, 0.5, 2, empty[:, 1:]))
    with pytest.raises(ValueError, match="causes"):
        stored.decode(narrow)


def test_runs_nothing_if_all_is_stored(tmp_path):
    tasks = build_replay_tasks([WhatIfCase.parse("easy")], 1, False)
    columns = [np.zeros(0, np.int64)] * 4
    result = WindowReplayResult(*columns, 7, 0.5, 2, np.zeros((2, len(CAUSES))))
    window = SimpleNamespace(jobs=())
    CaseStore(tmp_path / REPLAYS_FOLDER, replay_format(0)).store(tasks[0].key(DIGESTS), result)
    told = []
    (found,) = WhatIfReplayRunner(window, tmp_path, DIGESTS).run(tasks, lambda done, of: told.append((done, of)))
    assert (found.rounds, told) == (7, [(1, 1)])
