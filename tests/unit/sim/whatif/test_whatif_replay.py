"""Differences between the replay of a window and an ordinary replay."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cpsched_sim.cluster.replay import ReplayOptions, replay
from cpsched_sim.experiments.case_store import CaseStore
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.schedule_comparison import HALF_CLOSED_MODEL, OPEN_MODEL
from cpsched_sim.whatif.unused_capacity_causes import CAUSES
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import (
    MAX_THINK_TIME_S,
    PREEMPTION_FIGURES,
    REPLAYS_FOLDER,
    WhatIfReplayRunner,
    WindowReplayResult,
    build_replay_tasks,
    replay_format,
    replay_window,
    session_followers,
)
from cpsched_sim.whatif.whatif_window import OUTAGE, WindowPeriodOptions
from tests.unit.sim.whatif.accounting import FIRST_S, a_line, a_site, a_window, clock, replayed

DAY = 86_400
WHOLE = {"NNodes": 5, "NCPUS": 20, "NodeList": "a[1-3],b[1-2]"}


@pytest.mark.parametrize("text", ["easy", "slurm", "easy / profile", "lookahead effort=20", "advised effort=20"])
def test_plain_window_equals_ordinary_replay(tmp_path, text):
    site = a_site(tmp_path, days=1, jobs_a_day=80)
    lines = site.read_text().splitlines()[1:]
    window = a_window(tmp_path, lines)
    setup = ReplaySpec(WhatIfCase.parse(text).spec)
    cluster = System(window.system, window.header).cluster
    ordinary = replay(window.jobs, cluster, setup.build(window.jobs), ReplayOptions(strict=True))
    ours = replay_window(window, setup.build(window.jobs))
    assert np.array_equal(ours.start_s, ordinary.start_s)
    assert np.array_equal(ours.end_s, ordinary.end_s)


def test_case_chooses_nodes_with_least_stranded_gpus(tmp_path):
    """Nine of ten earlier jobs took a node's four GPUs, so the job of one GPU belongs beside the job of two."""

    def a_gpu_line(id, gpus, submit, end):
        return a_line(id, submit, submit, end, NCPUS=1, AllocTRES=f"cpu=1,gres/gpu={gpus}")

    lines = [a_gpu_line(100 + i, 4 if i else 1, -9000, -1000) for i in range(10)]
    lines += [a_gpu_line(1, 4, 0, 50), a_gpu_line(2, 2, 1, 900), a_gpu_line(3, 1, 60, 900), a_gpu_line(4, 4, 70, 900)]
    system = """
name: small
resources: [cores, gpus]
node_types: { a: { count: 2, prefix: a, each: { cores: 8, gpus: 4 } } }
units: { rule: cores }
"""
    found = {}
    for text in ("easy", "easy least-stranded-gpus=true"):
        case = WhatIfCase.parse(text)
        window = case.apply_to_window(a_window(tmp_path, lines, system=system))
        run = replay_window(window, ReplaySpec(case.spec).build())
        found[text] = (run.start_s - FIRST_S).tolist(), run.stranded_gpus
    # GPUs from 60 s before the first job until the arrival of the last: 1.8 of 8 for 59 s, then 4.5 or 0.9 for 11 s.
    assert found == {
        "easy": ([0, 1, 60, 900], pytest.approx((1.8 * 59 + 4.5 * 11) / 131 / 8)),
        "easy least-stranded-gpus=true": ([0, 1, 60, 70], pytest.approx((1.8 * 59 + 0.9 * 11) / 131 / 8)),
    }


LONG = {**WHOLE, "NNodes": 4, "NCPUS": 16, "Timelimit": "03:00:00"}


@pytest.mark.parametrize(
    ("text", "from_s", "lines", "expected", "late_fixed"),
    [
        # a job that runs at the beginning holds its nodes until its recorded end
        ("easy", DAY, [a_line(1, 0, 10, DAY + 500, **WHOLE), a_line(2, DAY + 5, DAY + 500, DAY + 600)],
         {1: (DAY, DAY + 500), 2: (DAY + 500, DAY + 600)}, 0),
        # a cancelled job keeps its position in the queue until then
        ("fcfs", -60, [a_line(1, 0, 0, 1000), a_line(2, 5, None, 400, State="CANCELLED by 7", **WHOLE),
                       a_line(3, 6, 400, 9000, **LONG)], {1: (0, 1000), 3: (400, 9000)}, 0),
        # a cancelled job that starts earlier runs until then
        ("easy", -60, [a_line(1, 0, 0, 1000), a_line(2, 5, None, 400, State="CANCELLED by 7"), a_line(3, 6, 6, 9)],
         {1: (0, 1000), 2: (5, 400), 3: (6, 9)}, 0),
        # the job of a reservation is first, but waits for its nodes
        ("easy", -60, [a_line(1, 0, 0, 1000, **WHOLE), a_line(2, 1, 2000, 2500),
                       a_line(3, 0, 500, 1500, Reservation="r", **WHOLE)],
         {1: (0, 1000), 3: (1000, 1500), 2: (1500, 2000)}, 1),
        # it starts on time without pending jobs, and without other events
        ("easy", -60, [a_line(1, 0, 500, 1500, Reservation="r", **WHOLE), a_line(2, 900, 1500, 1600),
                       a_line(3, 2, 2, 300)], {1: (500, 1500), 3: (2, 300), 2: (1500, 1600)}, 0),
        ("easy", -60, [a_line(1, 0, 10, 700, Reservation="r", **WHOLE), a_line(2, 0, 0, 100)],
         {2: (0, 100), 1: (100, 700)}, 1),
    ],
)  # fmt: skip
def test_jobs_that_do_not_wait_for_a_decision(tmp_path, text, from_s, lines, expected, late_fixed):
    window = a_window(tmp_path, lines, WindowPeriodOptions(from_=clock(from_s)))
    assert replayed(window, text) == expected
    assert replay_window(window, ReplaySpec(WhatIfCase.parse(text).spec).build()).late_fixed == late_fixed


def test_reacting_user_submits_after_end_of_previous_job(tmp_path):
    lines = [
        a_line(1, 0, 0, 100, User="bob", Timelimit="00:02:00", **WHOLE),
        a_line(2, 1, 900, 1000),  # it really began late; a replay begins it at 100
        a_line(3, 1060, 1060, 1100),
        a_line(4, 1100 + MAX_THINK_TIME_S + 1, 2500, 2600),
        a_line(5, 1060, 1060, 1100, User="eve"),
        a_line(6, 1060, 1060, 1100, User="max"),
        a_line(7, 1100 + MAX_THINK_TIME_S, 2500, 2600, User="max"),
        a_line(8, 2600, 2700, 2800, User="max"),
    ]
    window = a_window(tmp_path, lines)
    ids = [item.job.id for item in window.jobs]
    told = {(ids[at], ids[next_], s) for at, pairs in session_followers(window).items() for next_, s in pairs}
    assert told == {(2, 3, 60), (6, 7, MAX_THINK_TIME_S), (7, 8, 0)}, (
        "a pause of just 20 minutes, and none, are of a session"
    )
    starts = replayed(window, "easy", half_closed=True)
    assert (starts[2], starts[3]) == ((100, 200), (260, 300))
    assert starts[5] == (1060, 1100), "another user's"
    assert replayed(window, "easy")[3] == (1060, 1100)


def test_chain_of_sessions_loses_no_job(tmp_path):
    site = a_site(tmp_path, days=2, jobs_a_day=60)
    window = a_window(tmp_path, site.read_text().splitlines()[1:])
    assert len(session_followers(window)) > 3
    assert len(replayed(window, "slurm", half_closed=True)) == len(window.jobs)


def test_twin_of_twin_site_reproduces_all_starts(tmp_path):
    site = a_site(tmp_path, days=1, jobs_a_day=90)
    window = a_window(tmp_path, site.read_text().splitlines()[1:])
    really = {i.job.id: i.recorded_start_s for i in window.jobs}
    found = replay_window(window, ReplaySpec(WhatIfCase.parse("slurm").spec).build())
    assert {i.job.id: int(s) for i, s in zip(window.jobs, found.start_s, strict=True)} == really
    waited = found.start_s - found.arrival_s
    assert (waited > 60).sum() > 5, "a site without waits shows nothing"


@pytest.mark.parametrize(("checkpoints", "kept_s"), [("", 0), (', checkpoint_every: "00:00:01"', -5)])
def test_preempted_job_runs_again_but_outage_does_not(tmp_path, checkpoints, kept_s):
    policy = parse_site_policy_file(
        Path("site.yaml"), "accounts: { lab: {} }\npartitions: { main: { tier: 1 }, high: { tier: 2 } }\n"
        f"preemption: {{ type: partition_prio{checkpoints} }}\n",
    )  # fmt: skip
    lines = [a_line(1, 0, 10, DAY + 500, **WHOLE), a_line(2, DAY + 5, DAY + 500, DAY + 600, Partition="high")]
    window = a_window(tmp_path, lines, WindowPeriodOptions(from_=clock(DAY)), site=policy)
    found = replay_window(window, ReplaySpec(WhatIfCase.parse("easy").spec).build())
    assert (found.start_s - window.from_s).tolist() == [105, 5]
    assert (found.end_s - found.start_s).tolist() == [window.jobs[0].run_s + kept_s, 100]
    assert found.preemption["victims"] == 1
    outages = replace(window, role=np.where(np.arange(2) == 0, OUTAGE, window.role))
    found = replay_window(outages, ReplaySpec(WhatIfCase.parse("easy").spec).build())
    assert found.preemption["victims"] == 0


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
