"""Conversion of workloads from and to pandas frames."""

import pandas
import pytest

from cpsched.errors import InvalidValue
from cpsched_sim import from_frame, load, simulate
from cpsched_sim.errors import InvalidTrace
from tests.unit.sim.test_cli import FOUR_JOBS


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "four.swf"
    path.write_text(FOUR_JOBS)
    return load(path)


def a_frame(**columns):
    return pandas.DataFrame({"submit_s": [0, 5], "run_s": [10, 20], "processors": [1, 4], **columns})


def test_frame_of_workload_gives_same_workload(workload):
    """Units of one processor, so that nothing is lost on the way."""
    frame = workload.to_frame()
    back = from_frame(frame, processors=4)
    assert back.jobs == workload.jobs
    assert back.system == workload.system == "pool"
    assert list(frame["processors"]) == [3, 2, 1, 1]
    assert "start_s" not in frame.columns
    simulated = simulate(back, "easy").to_frame()
    assert simulated.drop(columns=["start_s", "end_s", "wait_s", "bounded_slowdown"]).equals(frame)


def test_columns_have_given_names():
    frame = pandas.DataFrame({
        "SubmitTime": pandas.to_datetime(["2024-10-04 00:00", "2024-10-04 00:01"], utc=True),
        "Elapsed": pandas.to_timedelta(["00:10:00", "1 day"]),
        "Limit": [pandas.Timedelta("1h"), None],
        "AllocCPUS": [1.0, 4.0],
        "User": ["ada", None],
    })  # fmt: skip
    names = {"submit_s": "SubmitTime", "run_s": "Elapsed", "walltime_s": "Limit", "processors": "AllocCPUS"}
    first, second = from_frame(frame, names | {"user": "User"}, processors=8).jobs
    assert (first.job.id, first.job.submit_s, first.run_s, first.job.walltime_s) == (1, 20_000 * 86_400, 600, 3600)
    assert (second.job.submit_s, second.run_s, second.job.walltime_s) == (20_000 * 86_400 + 60, 86_400, 86_400)
    assert (first.job.user, second.job.user, second.job.request.units) == ("ada", "", 4)


def test_default_pool_holds_largest_job():
    assert from_frame(a_frame()).cluster.capacity.tolist() == [[4]]
    assert from_frame(a_frame(), system="eurora").system == "eurora"


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ({"processors": [1, 1.5]}, {}, "frame:2: processors: 1.5: must be a whole number"),
        ({"submit_s": [0, -1]}, {}, "frame:2: submit_s: -1: must not be negative"),
        ({"job": [7, 7]}, {}, "frame:2: job: 7: must occur only once"),
        ({}, {"procs": "processors"}, "columns=procs: must be one of account, job, name, processors"),
        ({}, {"user": "Owner"}, r"columns\['user'\]=Owner: must be a column of the frame"),
    ],
)
def test_frame_error_names_row_and_column(columns, names, message):
    with pytest.raises((InvalidTrace, InvalidValue), match=message):
        from_frame(a_frame(**columns), names)
    if message.startswith("frame"):
        assert len(from_frame(a_frame(**columns), lenient=True).jobs) == 1


def test_names_missing_column():
    with pytest.raises(InvalidValue, match="columns=run_s: must be in the frame"):
        from_frame(a_frame().drop(columns="run_s"))


def test_counts_truncated_and_dropped_jobs():
    found = from_frame(a_frame(walltime_s=[5, 30]))
    assert [item.run_s for item in found.jobs] == [5, 20]
    assert found.notes == ("cut 1 job: run time longer than the requested time",)
    found = from_frame(a_frame(processors=[1, 0]))
    assert [item.job.id for item in found.jobs] == [1]
    assert found.notes[0] == "dropped 1 job: run time below 1 s, or no processors"
