"""The live proof of `whatif`, on runs that never were: workloads, records, lag, and what is judged."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cpsched_sim.errors import Unusable
from cpsched_sim.whatif.collecting import FORMAT, collect
from tests.slurm import whatif_live
from tests.slurm.whatif_live import (
    ADVISE,
    CONTROL,
    CORES,
    FIGURES,
    LOAD,
    NODES,
    SHAPES,
    SLURM,
    Ran,
    figures,
    held,
    judge,
    lag_s,
    ran,
    said,
    script,
    tell_all,
    told,
    workload,
)

BEGAN = datetime(2026, 11, 23, 14, tzinfo=UTC)
SECONDS = int(BEGAN.timestamp())


def at(second):
    return (BEGAN + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def a_line(id, submit, start, end, nodes="w1"):
    row = {
        "JobID": id, "JobIDRaw": id, "User": "alice", "Account": "lab", "Partition": "main", "QOS": "normal",
        "Submit": at(submit), "Eligible": at(submit), "Start": at(start), "End": at(end), "State": "COMPLETED",
        "NNodes": 1, "NCPUS": 16, "ReqTRES": "cpu=16,mem=16000M,node=1", "AllocTRES": "cpu=16,mem=16000M,node=1",
        "Timelimit": "00:02:00", "NodeList": nodes, "JobName": "wrap|ped",
    }  # fmt: skip
    return "|".join(str(row.get(name, "")) for name in FORMAT.split(","))


def collected(folder, lines):
    """A folder as `collect` makes it, of a Slurm with two nodes of 16 cores."""
    nodes = "".join(
        f"NodeName=w{n} CPUTot=16 CPUEfctv=16 RealMemory=16384 Gres=(null) State=IDLE Partitions=main\n" for n in (1, 2)
    )

    def ask(command):
        if command.startswith("sacct "):
            return "\n".join([FORMAT.replace(",", "|"), *lines, ""])
        known = {
            "scontrol -o show node": nodes,
            "scontrol show config": f"SchedulerParameters = {whatif_live.PARAMETERS}\n",
            "scontrol -o show partition": "PartitionName=main PriorityTier=1 Nodes=w[1-2]\n",
        }  # fmt: skip
        if command not in known:
            raise Unusable(f"{command}: this Slurm has no accounts")
        return known[command]

    collect(0.1, folder, ask=ask, now=BEGAN + timedelta(hours=1))
    return folder


def queue(wait_s):
    """120 jobs on two nodes, each `wait_s` later than the one before them has ended."""
    found = []
    for number in range(120):
        start = max((number // 2) * (60 + wait_s), 30 * number)
        found.append(a_line(number + 1, 30 * number, start, start + 60, f"w{1 + number % 2}"))
    return found


def test_a_workload_has_all_that_is_to_be_shown_and_is_the_same_for_the_same_seed():
    for seed in range(1, 6):
        jobs = workload(seed)
        assert jobs == workload(seed) != workload(seed + 1)
        assert sum(job.tasks for job in jobs) == whatif_live.JOBS_OF_A_SEED
        assert {job.user for job in jobs} == {"alice", "bob"}
        assert {job.qos for job in jobs} == {"normal", "pair", "cores"}
        assert any(job.tasks > 1 for job in jobs)
        assert any("gpu" in job.options for job in jobs)
        assert any("-N8" in job.options for job in jobs)
        assert all(60 * job.limit_min >= job.run_s + 5 for job in jobs)
        cores = {options: each for options, each, _ in SHAPES}
        work = sum(cores[job.options] * job.run_s * job.tasks for job in jobs)
        assert work / (NODES * CORES * jobs[-1].at_s) == pytest.approx(LOAD)
        assert jobs[0].at_s == 0


def test_each_job_is_submitted_at_its_own_moment():
    first, second = workload(1)[:2]
    lines = script([first, replace(second, at_s=1.5, tasks=5, qos="pair", user="bob")]).splitlines()[-2:]
    assert lines[0].startswith("at 0; sbatch ")
    assert "--array" not in lines[0]
    assert lines[1].startswith("at 1500000; sbatch ")
    assert "--array=1-5 " in lines[1]
    assert "--uid=bob --qos=pair" in lines[1]


def test_a_record_is_read_in_order_and_its_copy_ends_later(tmp_path):
    folder = collected(
        tmp_path / "slurm", [a_line(2, 5, 70, 130), a_line(1, 0, 3, 63), a_line(3, 9, 9, 20).replace(at(20), "Unknown")]
    )
    assert [(job.id, job.start_s - SECONDS, job.end_s - SECONDS) for job in ran(folder)] == [
        ("1", 3, 63),
        ("2", 70, 130),
    ]
    held(folder, 2.0, tmp_path / "held")
    assert [job.end_s - SECONDS for job in ran(tmp_path / "held")] == [65, 132]
    assert (tmp_path / "held" / "jobs.txt").read_text().count("wrap|ped") == 3
    held(folder, 2.5, tmp_path / "more")
    assert {job.end_s - SECONDS - end for job, end in zip(ran(tmp_path / "more"), (63, 130), strict=True)} == {2, 3}
    assert (tmp_path / "held" / "config.txt").read_text() == (folder / "config.txt").read_text()


def test_the_lag_is_that_of_jobs_which_nothing_but_the_machine_kept_waiting():
    def job(id, submit, start, end, nodes="w1", qos="normal"):
        return Ran(id, submit, start, end, nodes, qos)

    first = job("1", 0, 0, 50)
    assert lag_s([first, job("2", 1, 53, 90)]) == 3
    assert lag_s([first, job("2", 1, 53, 90, "w2")]) == 0, "it waited for something else"
    assert lag_s([first, job("2", 1, 61, 90)]) == 0, "too long for a lag"
    assert lag_s([first, job("2", 45, 53, 90)]) == 0, "it came just before"
    assert lag_s([first, job("2", 1, 80, 99, "w[1-2]"), job("3", 2, 53, 75)]) == 5, "the one behind was no first"
    limited = job("2", 1, 95, 99, qos="pair")
    assert lag_s([first, limited, job("3", 2, 54, 60)]) == 4, "the one that a limit keeps is not before it"
    assert lag_s([first, job("2", 1, 53, 90, qos="pair")]) == 0
    assert lag_s([first, job("2", 1, 53, 60), job("3", 1, 64, 90)]) == 3.5


def test_figures_are_those_of_whatif(tmp_path):
    jobs = [Ran(str(n), 0, wait, wait + 20, "w1", "normal") for n, wait in enumerate((0, 10, 20, 90))]
    found = figures(jobs)
    assert tuple(found) == FIGURES
    assert found["mean wait"] == 30
    assert found["median wait"] == 15
    assert found["longest wait"] == 90
    assert found["mean bounded slowdown"] == pytest.approx((1 + 1.5 + 2 + 5.5) / 4)
    assert figures(jobs, lag=20)["mean bounded slowdown"] == pytest.approx((1 + 1.25 + 1.5 + 3.25) / 4)


def findings_of(difference, interval):
    rows = [{"name": name, "difference": difference, "interval": interval, "verdict": "told"} for name in FIGURES]
    return {"cases": [{"figures": rows}, {"figures": rows}]}


def test_a_prediction_holds_where_the_real_difference_lies_in_its_interval():
    real = {row: dict.fromkeys(FIGURES, value) for row, value in ((SLURM, 100.0), (ADVISE, 90.0), (CONTROL, 70.0))}
    found = judge(3, findings_of(-12.0, [-20.0, -10.0]), real)
    assert [(each.row, each.real, each.holds) for each in found if each.figure == "mean wait"] == [
        (ADVISE, -10.0, True),
        (CONTROL, -30.0, False),
    ]
    assert not any(each.holds for each in judge(3, findings_of(-12.0, None), real))
    only = {row: real[row] for row in (SLURM, CONTROL)}
    assert {each.row for each in judge(3, findings_of(-12.0, None), only)} == {CONTROL}
    text = "\n".join(told(found, "mean wait"))
    assert "| 3 | advise | 100.0 | -12.0 | -20.0 to -10.0 | -10.0 | yes | told |" in text
    assert "control, mean wait: said -12.0, real -30.0; in the interval 0 of 1" in text


def test_what_is_there_is_judged_and_what_is_not_is_said(tmp_path, capsys):
    for row, wait_s in ((SLURM, 12), (ADVISE, 6), (CONTROL, 3)):
        collected(tmp_path / "seed-1" / row, queue(wait_s))
    tell_all([1, 2], tmp_path, search_seeds=1)
    out = capsys.readouterr().out
    assert "seed 1: 120 jobs, mean wait " in out
    assert "seed 2: Slurm alone has not run" in out
    assert out.count("| 1 | advise | ") == len(FIGURES)
    kept = json.loads((tmp_path / "seed-1" / "whatif" / "findings.json").read_text())
    assert [case["dispatcher"] for case in kept["cases"]] == ["advised", "lookahead"]
    assert kept["cases"][0]["settings"]["every_s"] == str(whatif_live.ADVICE_S)
    assert kept["window"]["from"] == "2026-11-23T14:00:00+00:00", "not where a hundredth of the jobs had come"
    before = (tmp_path / "seed-1" / "whatif" / "findings.json").stat().st_mtime_ns
    tell_all([1], tmp_path, search_seeds=1)
    assert (tmp_path / "seed-1" / "whatif" / "findings.json").stat().st_mtime_ns == before


def test_a_whatif_that_fails_is_told(tmp_path):
    with pytest.raises(SystemExit, match="whatif ended with"):
        said(tmp_path / "nothing", tmp_path / "out", 1, SECONDS)
