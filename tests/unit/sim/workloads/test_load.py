import pytest

from cpsched.model import Request
from cpsched_sim.errors import InvalidTrace, Unusable
from cpsched_sim.workloads.load import load, load_jobs
from tests.traces import BLUE, KIT, KTH, XDMOD, trace
from tests.unit.sim.traces.test_sacct import NAMED, row
from tests.unit.sim.traces.test_swf import line

HEADER = "; MaxProcs: 8\n"


def test_jobs_are_put_in_order_of_arrival_ties_in_file_order(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(HEADER + "\n".join([line("4", submit="9"), line("2", submit="5"), line("3", submit="9"), ""]))
    workload = load(path)
    assert [entry.job.id for entry in workload.jobs] == [2, 4, 3]
    assert "sorted by submit time: 1 jobs" in workload.notes[0]


def test_jobs_of_one_second_are_in_order(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(HEADER + "\n".join([line("4", submit="9"), line("2", submit="9"), line("3", submit="10"), ""]))
    assert load(path).notes == ()


def test_a_job_that_can_never_fit_is_an_error_with_its_line_or_skipped(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(HEADER + "\n".join([line("1"), line("2", processors="9"), ""]))
    with pytest.raises(InvalidTrace, match=r"t\.swf:3: units: 9: no more than 8"):
        load(path)
    workload = load(path, lenient=True)
    assert len(workload.jobs) == 1
    assert workload.notes[0].startswith("skipped 1 jobs: units")


def test_reading_stops_after_max_jobs_even_before_a_bad_line(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(HEADER + line() + "\n" + "garbage\n")
    assert len(load(path, max_jobs=1).jobs) == 1


@pytest.mark.parametrize("content", ["", HEADER, HEADER + line(run="0")])
def test_a_trace_without_jobs_is_refused(tmp_path, content):
    path = tmp_path / "t.swf"
    path.write_text(content)
    with pytest.raises(Unusable, match=r"no jobs to replay|no MaxProcs|seems to be empty, no trace"):
        load(path)


@pytest.mark.parametrize(
    ("name", "system", "jobs", "processors"),
    [(KTH, None, 28_481, 100), (BLUE, None, 232_542, 1152), (KIT, "kit-forhlr2", 25_326, 24_048)],
)
def test_the_filtered_shared_traces_stay_as_they_are(name, system, jobs, processors):
    workload = load(trace(name), system)
    assert len(workload.jobs) == jobs
    assert int(workload.cluster.capacity[:, 0].sum()) == processors
    assert workload.notes == ()
    assert len({id(entry.job.request) for entry in workload.jobs}) < 400


def test_accounting_data_is_recognised_by_its_bars(tmp_path):
    system = tmp_path / "site.yaml"
    system.write_text(
        "name: site\nresources: [cores, memory_mib, gpus]\nunits: { rule: cores }\n"
        "node_types: { n: { count: 40, each: { cores: 16, memory_mib: 64000, gpus: 2 } } }\n"
    )
    assert len(load(trace(XDMOD), str(system)).jobs) == 4024


def test_jobs_are_read_without_a_system_and_ask_for_the_same(tmp_path):
    path = tmp_path / "t.swf"
    path.write_text(HEADER + line("1", processors="3") + "\n" + line("2", submit="5") + "\n")
    assert load_jobs(path) == load(path).jobs
    path.write_text(line("1", processors="900") + "\n" + line("2", submit="5") + "\n")
    assert [job.job.request.units for job in load_jobs(path)] == [900, 4]


def test_accounting_data_is_read_without_a_system(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}\n{row(cpus='12', tres='mem=1G,gres/gpu=3')}\n")
    assert load_jobs(path)[0].job.request == Request(1, (12, 1024, 3))
