"""A trace's recorded schedule compared with a replay."""

import pytest
from typer.testing import CliRunner

from cpsched_sim import load, recorded_schedule_of, simulate
from cpsched_sim.cli import app
from cpsched_sim.recorded_schedule import mismatch_warning
from cpsched_sim.site.policy_file import load_site_policy_file
from cpsched_sim.workloads.workload_loader import apply_site_policy
from tests.unit.sim.traces.test_swf import line


def swf(folder, *rows, processors=4):
    path = folder / "t.swf"
    path.write_text("\n".join([f"; MaxProcs: {processors}", *rows, ""]))
    return path


def a_row(id, wait, submit=0, run=100, processors=1):
    of = {"submit": submit, "run": run, "processors": processors, "requested": 1000, "wait": wait}
    return line(str(id), **{name: str(value) for name, value in of.items()})


def test_figures_are_those_of_recorded_starts(tmp_path):
    found = recorded_schedule_of(load(swf(tmp_path, a_row(1, 0), a_row(2, 300), a_row(3, -1))))
    assert (found.measures.wait_s.tolist(), found.measures.run_s.tolist()) == ([0, 300], [100, 100])
    assert (found.unknown, found.summary()["jobs"]) == (1, 2)
    assert found.measures.utilization(4) == pytest.approx(200 / (4 * 400))
    assert "mean_wait_s" in repr(found)
    assert found.to_frame()["wait_s"].to_dict() == {1: 0, 2: 300}


def test_trace_without_starts_has_no_recorded_schedule(tmp_path):
    assert recorded_schedule_of(load(swf(tmp_path, a_row(1, -1)))) is None


def test_recorded_schedule_has_account_figures(tmp_path):
    (tmp_path / "site.yaml").write_text("accounts: { physics: { shares: 1, users: [7] } }\n")
    workload = apply_site_policy(load(swf(tmp_path, a_row(1, 50))), load_site_policy_file(tmp_path / "site.yaml"))
    assert recorded_schedule_of(workload).summary()["accounts"]["physics"]["mean_wait_s"] == 50


def test_warns_if_only_recorded_jobs_wait(tmp_path):
    path = swf(tmp_path, a_row(1, 3600), a_row(2, 1800, submit=9), processors=1000)
    result = CliRunner().invoke(app, ["simulate", str(path)])
    assert result.exit_code == 0
    (said,) = [text for text in result.stderr.splitlines() if text.startswith("warning: ")]
    assert "the mean wait is 0 s in the replay, and was 2,700 s as recorded: pool is larger than" in said
    assert "as recorded, at most 0 % of it was in use" in said
    assert f"  {said}" in repr(simulate(path)), "in Python, too"
    result = CliRunner().invoke(app, ["compare", str(path), "--dispatcher", "easy,fcfs"])
    assert result.stderr.count("pool is larger than") == 1


def test_warns_if_only_replayed_jobs_wait(tmp_path):
    rows = [a_row(i, 1, run=900, processors=4) for i in range(1, 6)]
    result = CliRunner().invoke(app, ["simulate", str(swf(tmp_path, *rows))])
    assert "the mean wait is 1,800 s in the replay, and was 1 s as recorded: pool is smaller than" in result.stderr


@pytest.mark.parametrize("wait", [-1, 0, 59, 150])
def test_does_not_warn_if_waits_agree_or_are_unknown(tmp_path, wait):
    path = swf(tmp_path, a_row(1, 0, processors=4), a_row(2, wait, processors=4))
    assert simulate(path).mismatch_warning() == ""
    assert CliRunner().invoke(app, ["simulate", str(path)]).stderr == ""


@pytest.mark.parametrize(
    ("real_s", "replayed_s", "told"),
    [(600, 59, True), (600, 60, False), (59, 0, False), (60, 5, True), (5, 60, True), (6, 60, False), (0, 59, False)],
)
def test_warns_above_factor_10_and_one_minute(tmp_path, real_s, replayed_s, told):
    found = recorded_schedule_of(load(swf(tmp_path, a_row(1, real_s))))
    assert bool(mismatch_warning(found, [replayed_s])) is told


def test_one_deviating_dispatcher_gives_no_warning(tmp_path):
    found = recorded_schedule_of(load(swf(tmp_path, a_row(1, 600))))
    assert mismatch_warning(found, [0, 500, 10**6]) == ""
    assert mismatch_warning(found, []) == ""
    assert "1,000,000 s in the replay" in mismatch_warning(found, [10**6])


def test_warns_of_recorded_use_above_capacity_if_lasting(tmp_path):
    long = swf(tmp_path, a_row(1, 0, processors=4), a_row(2, 50, processors=4))
    assert recorded_schedule_of(load(long)).notes() == [
        "as recorded: more than the 4 processors of pool were in use 33 % of the time, often 8: "
        "the machine was larger, or the record is inexact"
    ]
    short = swf(tmp_path, a_row(1, 0, run=500, processors=4), a_row(2, 499, run=500, processors=4))
    assert recorded_schedule_of(load(short)).notes() == []


def test_job_frame_has_recorded_starts(tmp_path):
    frame = simulate(swf(tmp_path, a_row(1, 0), a_row(2, 300), a_row(3, -1))).to_frame()
    assert frame["recorded_start_s"].isna().tolist() == [False, False, True]
    assert (frame["recorded_start_s"] - frame["submit_s"]).dropna().tolist() == [0, 300]
