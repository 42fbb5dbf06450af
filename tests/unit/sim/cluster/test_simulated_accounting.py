"""A site's policy in a replay: jobs start in its order, its limits always hold, and its shares are approached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cpsched.model import NEVER, Cluster, Job, Request
from cpsched_sim import cli
from cpsched_sim.cluster import replay
from cpsched_sim.comparison import compare
from cpsched_sim.simulation import simulate
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import Workload, apply_site_policy

POOL = Cluster.of([[16]], ["cores"])
NODES = Cluster.of([[4]] * 4, ["cores"])


def under(policy, jobs, cluster=POOL):
    """A workload under a site's policy."""
    plain = Workload("made", "pool", cluster, jobs, {}, ())
    return apply_site_policy(plain, parse_site_policy_file(Path("site.yaml"), policy))


def workload(rows, policy, cluster=POOL):
    """rows: (user, submit, processors, run seconds), perhaps with a walltime."""
    jobs = [
        TraceJob(Job(id, submit, (walltime or [run_s])[0], Request(cores, (1,)), user=user), run_s)
        for id, (user, submit, cores, run_s, *walltime) in enumerate(rows)
    ]
    return under(policy, jobs, cluster)


def replayed(rows, policy, dispatcher="easy", cluster=POOL, **settings):
    return simulate(workload(rows, policy, cluster), dispatcher, settings={"order": "priority", **settings})


def most_at_once(schedule, jobs, weight=lambda job: 1):
    """The largest sum of `weight` over jobs that run at the same time."""
    changes = []
    for at, item in enumerate(jobs):
        if schedule.start_s[at] != NEVER:
            changes += [(int(schedule.end_s[at]), -weight(item.job)), (int(schedule.start_s[at]), weight(item.job))]
    level = most = 0
    for _, change in sorted(changes):
        level += change
        most = max(most, level)
    return most


def limited(limits):
    """A policy with these limits of the only QOS."""
    return f"accounts: {{ lab: {{}} }}\nqos: {{ q: {{ limits: {{ {limits} }} }} }}\nusers: {{ qos: q }}\n"


LOAD = [(user, at, 1 + at % 4, 50 + 37 * at % 200, 300) for at in range(120) for user in ("ada", "bob")]


@pytest.mark.parametrize("cluster", [POOL, NODES])
@pytest.mark.parametrize("dispatcher", ["easy", "list-priority", "greedy"])
@pytest.mark.parametrize(
    ("limits", "weight", "most"),
    [
        ("MaxJobsPU: 3", lambda job: job.user == "ada", 3),
        ("MaxTRESPU: cpu=5", lambda job: job.request.units * (job.user == "ada"), 5),
        ("GrpTRES: cpu=7", lambda job: job.request.units, 7),
        ("GrpJobs: 4", lambda job: 1, 4),
        ("GrpTRESRunMins: cpu=30", lambda job: job.request.units, 6 + 24),
    ],
)
def test_limit_holds_at_every_time(cluster, dispatcher, limits, weight, most):
    settings = {} if dispatcher == "list-priority" else {"order": "priority"}
    made = workload(LOAD, limited(limits), cluster)
    simulation = simulate(made, dispatcher, settings=settings)
    assert (simulation.schedule.violations, simulation.never_started_count) == ((), 0)
    assert 0 < most_at_once(simulation.schedule, made.jobs, weight) <= most


def test_used_minutes_decay():
    policy = """\
accounts: { lab: { limits: { GrpTRESMins: cpu=100 } } }
fair_share: { half_life_days: 0.05 }
"""
    rows = [("ada", 0, 8, 1000), ("ada", 2000, 1, 10)]
    schedule = replayed(rows, policy).schedule
    assert schedule.start_s[0] == 0
    # Of 8,000 processor seconds 7,391 are left when the job ends; they fade to the limit of 6,000 by second 2,300. A
    # round comes every tenth of the half-life of 4,320 s.
    assert 2300 <= schedule.start_s[1] < 2300 + 432
    still = replayed(rows, policy.replace("0.05", "0")).schedule
    assert still.start_s[1] == NEVER
    assert "AssocGrpCPUMinutesLimit" in still.refused[1]


def test_higher_priority_starts_first_after_tier():
    policy = """\
accounts: { lab: {} }
qos: { low: { priority: 1 }, high: { priority: 10 } }
partitions: { "1": { tier: 2 } }
priority: { qos: 1000 }
users: { qos: low, qos_by_queue: { "2": high } }
"""
    jobs = [
        TraceJob(Job(id, id, 100, Request(16, (1,)), user=user, queue=queue), 100)
        for id, (user, queue) in enumerate((("ada", "0"), ("ada", "0"), ("bob", "2"), ("cid", "1")))
    ]
    schedule = simulate(under(policy, jobs), "easy", settings={"order": "priority"}).schedule
    assert schedule.start_s.tolist() == [0, 300, 200, 100]


@pytest.mark.parametrize("algorithm", ["fair-tree", "classic"])
def test_usage_approaches_account_shares(algorithm):
    policy = f"""\
accounts: {{ large: {{ shares: 80, users: [ada] }}, small: {{ shares: 20, users: [bob] }} }}
priority: {{ fair_share: 100000, calc_period_s: 60 }}
fair_share: {{ algorithm: {algorithm}, half_life_days: 1 }}
"""
    rows = [(user, 0, 4, 600) for _ in range(1000) for user in ("ada", "bob")]
    made = workload(rows, policy)
    ranked = simulate(made, "easy", settings={"order": "priority"})
    first_day = (ranked.schedule.start_s < 86_400).nonzero()[0]
    of_large = sum(made.jobs[at].job.user == "ada" for at in first_day) / len(first_day)
    assert 0.77 < of_large < 0.83


def test_basic_keeps_arrival_order():
    rows = [("ada", at, 16, 50) for at in range(20)]
    schedule = replayed(rows, "priority: { kind: basic }\naccounts: { lab: {} }\n").schedule
    assert schedule.start_s.tolist() == [50 * at for at in range(20)]


def test_compiled_loop_does_not_run_site_policy(monkeypatch):
    monkeypatch.setattr(replay, "COMPILED_FROM_JOBS", 0)
    made = workload([("ada", 0, 1, 10)], "accounts: { lab: {} }\n")
    assert len(simulate(made, "easy").schedule.dispatch_s) == 1


def test_comparison_includes_policy_figures():
    made = workload(LOAD, "accounts: { one: { shares: 3, users: [ada] }, two: { users: [bob] } }\n")
    found = compare(made, ["easy", "fcfs"])
    assert {"off", "Gini", "Jain"} <= set(repr(found).split())
    summary = found["easy/walltime"].summary()
    assert summary["accounts"]["one"]["share"] == 0.75
    assert sum(row["used"] for row in summary["accounts"].values()) == pytest.approx(1)


SWF = "; MaxProcs: 4\n" + "".join(
    f"{at} {at} -1 50 2 -1 -1 2 60 -1 1 {1 + at % 3} 1 -1 1 -1 -1 -1\n" for at in range(1, 30)
)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "made.swf").write_text(SWF)
    (tmp_path / "site.yaml").write_text("accounts: { one: { users: [1] }, two: {} }\n")
    return tmp_path


def test_command_line_shows_shares(files):
    words = ["simulate", str(files / "made.swf"), "--policy", str(files / "site.yaml"), "--json"]
    result = CliRunner().invoke(cli.app, words)
    summary = json.loads(result.stdout)
    assert summary["accounts"]["one"]["jobs"] + summary["accounts"]["two"]["jobs"] == 29
    shown = CliRunner().invoke(cli.app, words[:-1])
    assert "share %" in shown.stdout


def test_bad_file_is_one_line_with_exit_code_2(files):
    (files / "site.yaml").write_text("accounts:\n  one: { shares: many }\n")
    result = CliRunner().invoke(cli.app, ["simulate", str(files / "made.swf"), "--policy", str(files / "site.yaml")])
    assert result.exit_code == 2
    assert "site.yaml:2: accounts.one.shares" in result.output


@pytest.mark.slow
def test_compare_draws_shares(files):
    pytest.importorskip("matplotlib")
    out = files / "out"
    words = ["compare", str(files / "made.swf"), "--dispatcher", "easy", "--policy", str(files / "site.yaml"),
             "--out", str(out), "--plots", "--processes", "1"]  # fmt: skip
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    assert (out / "shares.png").stat().st_size > 5000
    assert "share_distance" in (out / "compare.csv").read_text().partition("\n")[0]
    resumed = CliRunner().invoke(cli.app, [*words, "--resume"])
    assert "1 of 1 combination was already finished" in resumed.output


def test_exclusive_job_counts_all_its_nodes():
    """Two jobs of two whole nodes each, under a limit of three nodes: one after the other."""
    whole = [TraceJob(Job(id, 0, 100, Request(2, (4,), exclusive=True), user="ada"), 100) for id in (1, 2)]
    made = under(limited("GrpTRES: node=3"), whole, NODES)
    assert sorted(simulate(made, "easy").schedule.start_s.tolist()) == [0, 100]


@pytest.mark.parametrize(("walltime_s", "runs"), [(60, True), (61, False)])
def test_time_limit_counts_started_minutes(walltime_s, runs):
    policy = 'accounts: { lab: { users: { ada: { limits: { MaxWall: "0:01:00" } } } } }\n'
    found = replayed([("ada", 0, 1, 10, walltime_s), ("ada", 0, 1, 10, 10)], policy)
    assert (found.never_started_count == 0) is runs


def test_tres_factor_is_the_share_of_the_partition():
    """The small job requests all cores of its partition, and the large one 14 of 16: 1000 and 875 points."""
    cluster = Cluster.of([[4]] * 4, ["cores"], node_sets={"small": [0]})
    first = TraceJob(Job(1, 0, 100, Request(16, (1,)), user="ada"), 100)
    large = TraceJob(Job(2, 1, 100, Request(14, (1,)), user="ada"), 100)
    small = TraceJob(Job(3, 2, 100, Request(4, (1,), node_set=1), user="ada", queue="small"), 100)
    made = under("accounts: { lab: {} }\npriority: { tres: { cpu: 1000 } }\n", [first, large, small], cluster)
    assert simulate(made, "list-priority").schedule.start_s.tolist() == [0, 200, 100]
