"""Preemption in a replay: which jobs preempt which, the cost, and that no job is lost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cpsched.model import NEVER, Cluster, Job, Request
from cpsched.site.preemption import PreemptionRules
from cpsched_sim import cli
from cpsched_sim.errors import InvalidPolicy
from cpsched_sim.simulation import simulate
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy

NODES = Cluster.of([[4]] * 4, ["cores"])
BY_QOS = """
accounts: { lab: {} }
qos: { high: { priority: 10, preempt: [low, mid] }, mid: { priority: 5, preempt: [low] }, low: {} }
priority: { qos: 1000 }
preemption: { type: qos%s }
"""
BY_TIER = """
accounts: { lab: {} }
partitions: { high: { tier: 3 }, mid: { tier: 2, preempt_mode: cancel }, low: { tier: 1, preempt_mode: off } }
preemption: { type: partition_prio%s }
"""


def workload(rows, policy, cluster=NODES):
    """rows: (submit, request, run seconds, QOS and partition)."""
    jobs = [
        TraceJob(Job(id, submit, 5000, request, user="ada", qos=kind, queue=kind), run_s)
        for id, (submit, request, run_s, kind) in enumerate(rows)
    ]
    return apply_site_policy(
        Workload("made", "lab", cluster, jobs, {}, ()), parse_site_policy_file(Path("site.yaml"), policy)
    )


def with_grace(policy, low_s, mid_s=0):
    policy = policy.replace("low: {}", f"low: {{ grace_time: {low_s} }}")
    return policy.replace("mid: {", f"mid: {{ grace_time: {mid_s},")


def nodes(count):
    return Request(count, (4,), distinct=True, exclusive=True)


def cores(count):
    return Request(count, (1,))


def runs_of(schedule):
    """Every run, also those that were preempted: (slot, start, end, placement)."""
    last = [
        (slot, int(schedule.start_s[slot]), int(schedule.end_s[slot]), schedule.placement_of(slot))
        for slot in range(len(schedule.start_s))
        if schedule.start_s[slot] != NEVER
    ]
    earlier = [
        (run.slot, run.start_s, run.end_s, run.placement)
        for each in schedule.preemptions
        for run in each.victims
        if run.requeued
    ]
    return last + earlier


def verify_schedule(schedule, jobs, cluster, may_preempt, exempt_s):
    """Raise unless capacity holds at every second, every job ends once, and every victim could be preempted."""
    runs, cancelled = runs_of(schedule), set()
    for at_s in {start_s for _, start_s, _, _ in runs}:
        used = np.zeros_like(cluster.capacity)
        for slot, start_s, end_s, placement in runs:
            request = jobs[slot].job.request
            for node, units in placement if start_s <= at_s < end_s else ():
                used[node] += cluster.capacity[node] if request.exclusive else units * np.array(request.per_unit)
        assert (used <= cluster.capacity).all()
    began = {(slot, start_s) for slot, start_s, _, _ in runs}
    for each in schedule.preemptions:
        assert each.victims
        assert (each.slot, each.at_s) in began
        taken = {node for node, _ in each.placement}
        for run in each.victims:
            assert may_preempt(jobs[each.slot].job, jobs[run.slot].job)
            assert run.start_s + max(1, exempt_s) <= run.end_s == each.at_s
            assert taken & {node for node, _ in run.placement}
            cancelled |= set() if run.requeued else {run.slot}
    kept_s = Counter[int]()
    for run in (run for each in schedule.preemptions for run in each.victims):
        kept_s[run.slot] += run.kept_s
        assert run.lost_node_s >= 0
    for slot, item in enumerate(jobs):
        assert item.job.submit_s <= schedule.start_s[slot] < NEVER
        if slot not in cancelled:
            assert schedule.end_s[slot] - schedule.start_s[slot] == item.run_s - kept_s[slot]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.one_of(st.integers(1, 4).map(nodes), st.integers(1, 16).map(cores)),
        st.integers(1, 200),
        st.sampled_from(["low", "mid", "high"]),
    ),
    min_size=2,
    max_size=25,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@pytest.mark.parametrize("dispatcher", ["easy", "slurm"])
@pytest.mark.parametrize("exempt_s", [0, 60])
@settings(max_examples=40)
@given(rows=ROWS, mode=st.sampled_from(["requeue", "cancel"]), grace_s=st.sampled_from([(0, 0), (40, 0), (30, 90)]),
       options=st.sampled_from(
    ["", ", youngest_first: true", ", strict_order: true", ", reorder_count: 3", ", victims: least-work",
     ', victims: least-work, checkpoint_every: "00:00:20"']))  # fmt: skip
def test_no_job_is_lost_and_only_lower_qos_is_preempted(dispatcher, exempt_s, rows, mode, options, grace_s):
    more = f', mode: {mode}, exempt_time: "00:{exempt_s // 60:02}:00"{options}'
    made = workload(rows, with_grace(BY_QOS % more, *grace_s))
    rank = {"low": 0, "mid": 1, "high": 2}
    found = simulate(made, dispatcher)
    verify_schedule(found.schedule, made.jobs, NODES, lambda one, other: rank[other.qos] < rank[one.qos], exempt_s)
    assert found.summary()["preemption"]["in_vain"] == 0


@settings(max_examples=40)
@given(rows=ROWS)
def test_partition_without_preemption_keeps_its_jobs(rows):
    made = workload(rows, BY_TIER % "")
    schedule = simulate(made, "easy").schedule
    verify_schedule(schedule, made.jobs, NODES, lambda one, other: (one.queue, other.queue) == ("high", "mid"), 0)
    assert not any(run.requeued for each in schedule.preemptions for run in each.victims)


def test_requeued_job_continues_from_its_last_checkpoint():
    rows = [(0, nodes(4), 500, "low"), (50, nodes(2), 100, "high"), (300, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ', checkpoint_every: "00:00:20"'), "easy")
    assert found.schedule.start_s.tolist() == [400, 50, 300]
    assert found.schedule.end_s.tolist() == [400 + 500 - 40 - 140, 150, 400]
    assert [run.lost_node_s for each in found.schedule.preemptions for run in each.victims] == [4 * 10, 4 * 10]


OVERTAKEN = [(0, nodes(4), 500, "low"), (10, nodes(2), 100, "high")]
OF_EQUAL_LENGTH = [(0, nodes(2), 900, "low"), (20, nodes(2), 900, "low"), (50, nodes(1), 10, "high")]
ONE_JOB = ("preempt: [low, mid]", "preempt: [low, mid], limits: { MaxJobsPU: 1 }")
EASY, GREEDY, BY_PRIORITY = ("easy", None), ("greedy", None), ("easy", {"order": "priority"})
LATE_SLURM = (
    "slurm",
    {"scheduler_parameters": "defer,batch_sched_delay=30,bf_interval=1000,sched_interval=1000"},
)


@pytest.mark.parametrize(
    ("rows", "policy", "dispatcher", "starts", "ends", "victims"),
    [
        (OVERTAKEN, BY_QOS % "", EASY, [110, 10], [610, 110], [[0]]),
        (OVERTAKEN, BY_QOS % ", mode: cancel", EASY, [0, 10], [10, 110], [[0]]),
        (OVERTAKEN, BY_QOS % ", mode: off", EASY, [0, 500], [500, 600], []),
        # no event but the end of the exempt time makes this start possible
        (OVERTAKEN, BY_QOS % ', exempt_time: "00:05:00"', EASY, [400, 300], [900, 400], [[0]]),
        # a QOS overrides the mode and the exempt time
        (OVERTAKEN, (BY_QOS % "").replace("low: {}", 'low: { preempt_mode: cancel, preempt_exempt_time: "00:01:00" }'),
         EASY, [0, 60], [60, 160], [[0]]),
        # the preemptor starts in the second in which the grace time ends
        (OVERTAKEN, with_grace(BY_QOS % "", 60), EASY, [170, 70], [670, 170], [[0]]),
        (OVERTAKEN, BY_TIER.replace("preempt_mode: off", 'grace_time: "00:01:00"') % "", EASY, [170, 70], [670, 170],
         [[0]]),
        # the preemptor's nodes stay free during the grace time, or the short job would take one
        ([(0, nodes(2), 500, "low"), (10, nodes(4), 100, "high"), (20, nodes(1), 100, "low")],
         with_grace(BY_QOS % "", 60), GREEDY, [170, 70, 170], [670, 170, 270], [[0]]),
        # the preemptor starts early, because its victim ends
        ([(0, nodes(4), 30, "low"), (10, nodes(2), 100, "high")], with_grace(BY_QOS % "", 60), EASY,
         [0, 30], [30, 130], []),
        # the longest grace time of the victims of one start counts
        ([(0, nodes(2), 500, "low"), (0, nodes(2), 500, "mid"), (10, nodes(4), 100, "high")],
         with_grace(BY_QOS % "", 20, 50), EASY, [160, 160, 60], [660, 660, 160], [[1, 0]]),
        # its user's other job started during the grace time, and it exceeds a limit: the victims stop, as in Slurm
        ([(0, nodes(3), 500, "low"), (10, nodes(2), 100, "high"), (20, nodes(1), 200, "high")],
         with_grace(BY_QOS % "", 60).replace(*ONE_JOB), GREEDY, [380, 280, 20], [880, 380, 220], [[0], [0]]),
        # no job is preempted for a start that does not fit
        ([(0, nodes(3), 900, "low"), (1, nodes(1), 900, "high"), (2, nodes(4), 10, "high")], BY_QOS % "", EASY,
         [0, 1, 901], [900, 901, 911], []),
        # a job above its limit does not preempt
        ([(0, nodes(4), 900, "low"), (1, nodes(1), 100, "high"), (2, nodes(1), 100, "high")],
         (BY_QOS % "").replace(*ONE_JOB), BY_PRIORITY, [201, 1, 101], [1101, 101, 201], [[0]]),
        # two preemptors in one second share a limit
        ([*[(0, nodes(1), 1000, "low")] * 4, *[(10, nodes(1), 50, "high")] * 2], (BY_QOS % "").replace(*ONE_JOB),
         BY_PRIORITY, [110, 0, 0, 0, 10, 60], [1110, 1000, 1000, 1000, 60, 110], [[0]]),
        # two preemptors do not use the same free nodes
        ([(0, nodes(3), 500, "low"), (10, nodes(1), 100, "high"), (10, nodes(1), 100, "high")], BY_QOS % "",
         BY_PRIORITY, [110, 10, 10], [610, 110, 110], [[0]]),
        # the first preemptor leaves a node of its victim, and the second one stops the other job for one more node
        ([(0, nodes(3), 500, "low"), (0, nodes(1), 500, "low"), *[(10, nodes(2), 100, "high")] * 2], BY_QOS % "",
         BY_PRIORITY, [110, 110, 10, 10], [610, 610, 110, 110], [[0], [1]]),
        # a preemptor that fits waits for the dispatcher: Slurm's main loop runs 30 s after the requested pass
        ([(0, nodes(1), 1000, "low"), (95, nodes(1), 1000, "low"), (100, nodes(1), 50, "high")], BY_QOS % "",
         LATE_SLURM, [0, 95, 125], [1000, 1095, 175], []),
        # the job that was submitted first is stopped, or that which loses least
        (OF_EQUAL_LENGTH, BY_QOS % ", victims: slurm", EASY, [60, 20, 50], [960, 920, 60], [[0]]),
        (OF_EQUAL_LENGTH, BY_QOS % ", victims: least-work", EASY, [0, 60, 50], [900, 960, 60], [[1]]),
        # after 50 s and 30 s, the jobs lose 10 s and 30 s with a checkpoint every 40 s, unless they are cancelled
        (OF_EQUAL_LENGTH, BY_QOS % ', victims: least-work, checkpoint_every: "00:00:40"', EASY, [60, 20, 50],
         [920, 920, 60], [[0]]),
        (OF_EQUAL_LENGTH, (BY_QOS % ', victims: least-work, checkpoint_every: "00:00:40"').replace(
            "low: {}", "low: { preempt_mode: cancel }"), EASY, [0, 20, 50], [900, 50, 60], [[1]]),
    ],
)  # fmt: skip
def test_preemption_changes_starts_and_ends(rows, policy, dispatcher, starts, ends, victims):
    name, settings = dispatcher
    schedule = simulate(workload(rows, policy), name, settings=settings).schedule
    assert (schedule.start_s.tolist(), schedule.end_s.tolist()) == (starts, ends)
    assert [[run.slot for run in each.victims] for each in schedule.preemptions] == victims


def preemption_summary(rows, policy, dispatcher="easy"):
    return simulate(workload(rows, policy), dispatcher).summary()["preemption"]


def test_lost_work_and_waits_are_counted():
    """The work of a victim until the end of its grace time is lost."""
    lost = {"preemptions": 1, "victims": 1, "lost_node_h": 40 / 3600, "in_vain": 0, "mean_wait_s_of_preemptors": 0.0}
    assert preemption_summary(OVERTAKEN, BY_QOS % "") == lost
    later = {**lost, "lost_node_h": 4 * 70 / 3600, "mean_wait_s_of_preemptors": 60.0}
    assert preemption_summary(OVERTAKEN, with_grace(BY_QOS % "", 60)) == later
    rows = [(0, nodes(3), 500, "low"), (10, nodes(2), 100, "high"), (20, nodes(1), 200, "high")]
    assert preemption_summary(rows, with_grace(BY_QOS % "", 60).replace(*ONE_JOB), "greedy")["in_vain"] == 1


def victims(rows, options=""):
    made = workload(rows, BY_QOS % options)
    (preemption,) = simulate(made, "easy").schedule.preemptions
    return sorted(run.slot for run in preemption.victims)


FULL = [(0, nodes(2), 900, "mid"), (1, nodes(1), 900, "low"), (2, nodes(1), 900, "low")]


@pytest.mark.parametrize(
    ("wanted", "options", "expected"),
    [
        (1, "", [1]),  # lowest QOS, then fewest nodes, then oldest in Slurm's list
        (1, ", youngest_first: true", [2]),
        (2, "", [1, 2]),  # two low jobs before the one of a higher QOS
        (3, ", strict_order: true", [0, 1]),  # the job that completes the set is moved to the front
        (4, "", [0, 1, 2]),
    ],
)
def test_preempts_jobs_in_slurm_order(wanted, options, expected):
    assert victims([*FULL, (50, nodes(wanted), 10, "high")], options) == expected


def test_order_of_submission_decides_between_equal_jobs():
    """Their expected ends do not."""
    made = workload([(0, nodes(2), 900, "low"), (1, nodes(2), 900, "low"), (50, nodes(1), 10, "high")], BY_QOS % "")
    first, second, third = made.jobs
    longer = replace(second, job=replace(second.job, walltime_s=1000))
    (preemption,) = simulate(replace(made, jobs=[first, longer, third]), "easy").schedule.preemptions
    assert [run.slot for run in preemption.victims] == [0]


def test_cancelled_job_loses_the_work_before_its_checkpoint():
    rows = [(0, nodes(4), 500, "low"), (50, nodes(2), 100, "high")]
    found = simulate(workload(rows, BY_QOS % ', mode: cancel, checkpoint_every: "00:00:20"'), "easy")
    assert [run.lost_node_s for each in found.schedule.preemptions for run in each.victims] == [4 * 50]


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("{ type: qos, mode: suspend }", "mode"),
        ("{ type: gang }", "type"),
        ("{ type: qos, reorder_count: -1 }", "reorder"),
    ],
)
def test_rejects_setting_that_is_not_simulated(section, field):
    with pytest.raises(InvalidPolicy, match=field):
        parse_site_policy_file(Path("site.yaml"), f"preemption: {section}\n")


def test_preempt_list_names_known_qos():
    with pytest.raises(InvalidPolicy, match="scavenger"):
        parse_site_policy_file(Path("site.yaml"), "qos: { high: { preempt: [scavenger] } }\n")


def test_reads_modes_and_lists_from_dump(tmp_path):
    (tmp_path / "qos.txt").write_text(
        "Name|Priority|Preempt|PreemptMode|PreemptExemptTime|GraceTime\n"
        "high|10|low|cluster||00:00:00\nlow|0||cancel|00:10:00|00:02:00\n"
    )
    text = "dumps: { qos: qos.txt }\npreemption: { type: qos }\n"
    policy = parse_site_policy_file(tmp_path / "site.yaml", text).policy
    assert policy.preemption == PreemptionRules(
        "qos", "requeue", {"high": frozenset({"low"})}, {"high": 10, "low": 0}, {"low": "cancel"}, {"low": 120}
    )
    assert policy.preempt_exempt_s("low", "") == 600


def test_json_counts_preemptions_only_if_site_preempts(tmp_path):
    site, trace = tmp_path / "site.yaml", tmp_path / "t.swf"
    rows = ["1 0 -1 500 4 -1 -1 4 500 -1 1 1 1 -1 1 -1 -1 -1", "2 9 -1 50 4 -1 -1 4 60 -1 1 2 1 -1 2 -1 -1 -1"]
    trace.write_text("\n".join(["; MaxProcs: 4", *rows, ""]))
    words = 'accounts: { lab: {} }\npartitions: { "1": { tier: 1 }, "2": { tier: 2 } }\n'
    command = ["simulate", str(trace), "--policy", str(site), "--json"]
    site.write_text(words)
    assert "preemption" not in json.loads(CliRunner().invoke(cli.app, command).stdout)
    site.write_text(words + "preemption: { type: partition_prio }\n")
    counts = json.loads(CliRunner().invoke(cli.app, command).stdout)["preemption"]
    assert (counts["victims"], counts["lost_node_h"]) == (1, pytest.approx(4 * 9 / 3600))


def test_request_that_fits_after_a_preemption_starts_in_same_second():
    """It did not fit before the preemption, not even by stopping a job. A later equal request does not overtake it."""
    policy = """
        accounts: { lab: {} }
        qos: { high: { priority: 9, preempt: [low] }, mid: { priority: 9, preempt: [scrap] }, low: {}, scrap: {} }
        priority: { qos: 1000 }
        preemption: { type: qos }
    """
    two_cores = Request(1, (2,))
    rows = [
        (0, Request(1, (3,)), 100, "low"), (0, cores(1), 50, "scrap"),
        (10, two_cores, 20, "mid"), (10, cores(1), 20, "high"), (10, two_cores, 20, "mid"),
    ]  # fmt: skip
    found = simulate(workload(rows, policy, Cluster.of([[4]], ["cores"])), "easy", settings={"order": "priority"})
    assert found.schedule.start_s.tolist()[2:] == [10, 10, 30]
    assert len(found.schedule.preemptions) == 1
