"""Differences between the replay of a window and an ordinary replay."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpsched_sim.cluster.replay import ReplayOptions, replay
from cpsched_sim.simulation import ReplaySpec
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.systems.system_file import System
from cpsched_sim.whatif.whatif_cases import WhatIfCase
from cpsched_sim.whatif.whatif_replay import MAX_THINK_TIME_S, replay_window, session_followers
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


def test_initially_running_job_holds_nodes_until_recorded_end(tmp_path):
    lines = [a_line(1, 0, 10, DAY + 500, **WHOLE), a_line(2, DAY + 5, DAY + 500, DAY + 600)]
    starts = replayed(a_window(tmp_path, lines, WindowPeriodOptions(from_=clock(DAY))), "easy")
    assert starts == {1: (DAY, DAY + 500), 2: (DAY + 500, DAY + 600)}


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


def test_cancelled_job_keeps_queue_position_until_then(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000),
        a_line(2, 5, None, 400, State="CANCELLED by 7", **WHOLE),
        a_line(3, 6, 400, 9000, **{**WHOLE, "NNodes": 4, "NCPUS": 16, "Timelimit": "03:00:00"}),
    ]
    assert replayed(a_window(tmp_path, lines), "fcfs") == {1: (0, 1000), 3: (400, 9000)}


def test_cancelled_job_started_earlier_runs_until_then(tmp_path):
    lines = [a_line(1, 0, 0, 1000), a_line(2, 5, None, 400, State="CANCELLED by 7"), a_line(3, 6, 6, 9)]
    assert replayed(a_window(tmp_path, lines), "easy")[2] == (5, 400)


def test_reservation_job_is_first_but_waits_for_nodes(tmp_path):
    lines = [
        a_line(1, 0, 0, 1000, **WHOLE),
        a_line(2, 1, 2000, 2500),
        a_line(3, 0, 500, 1500, Reservation="r", **WHOLE),
    ]
    window = a_window(tmp_path, lines)
    assert replayed(window, "easy") == {1: (0, 1000), 3: (1000, 1500), 2: (1500, 2000)}
    assert replay_window(window, ReplaySpec(WhatIfCase.parse("easy").spec).build()).late_fixed == 1


def test_reservation_job_starts_on_time_without_pending_jobs(tmp_path):
    lines = [a_line(1, 0, 500, 1500, Reservation="r", **WHOLE), a_line(2, 900, 1500, 1600), a_line(3, 2, 2, 300)]
    window = a_window(tmp_path, lines)
    found = replay_window(window, ReplaySpec(WhatIfCase.parse("easy").spec).build())
    assert replayed(window, "easy") == {1: (500, 1500), 3: (2, 300), 2: (1500, 1600)}
    assert found.late_fixed == 0


def test_last_reservation_job_starts_without_other_events(tmp_path):
    window = a_window(tmp_path, [a_line(1, 0, 10, 700, Reservation="r", **WHOLE), a_line(2, 0, 0, 100)])
    assert replayed(window, "easy") == {2: (0, 100), 1: (100, 700)}


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
    assert starts[2] == (100, 200)
    assert starts[3] == (260, 300)
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
