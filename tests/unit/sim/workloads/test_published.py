"""Published formats are recognised by every command that accepts a trace."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cpsched_sim import simulate
from cpsched_sim.cli import app
from cpsched_sim.errors import InputError
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.workloads.workload_loader import load, open_trace
from tests.unit.sim.traces.tables import at, kestrel, pm100, write
from tests.unit.sim.traces.test_swf_extension import frontier

SYSTEM = """\
name: small
resources: [cores, memory_mib, gpus]
node_types: { n: { count: 4, each: { cores: 112, memory_mib: 262144, gpus: 8 } } }
units: { rule: cores }
"""


def apart(job):
    """The times of one of several jobs."""
    return {
        "submit_time": at(60 * job), "start_time": at(60 * job + 300), "end_time": at(60 * job + 900),
    }  # fmt: skip


@pytest.fixture
def traces(tmp_path):
    swf = tmp_path / "frontier.swf"
    swf.write_text(
        "\n".join(["; UnixStartTime: 1700000000", *(frontier(str(i), submit=str(i), wait="10") for i in (1, 2, 3)), ""])
    )
    return {
        "swf": swf,
        "pm100": write(
            tmp_path / "job_table.parquet", [pm100(i, eligible_time=at(60 * i), **apart(i)) for i in (1, 2, 3)]
        ),
        "kestrel": write(tmp_path / "month.parquet", [kestrel(str(i), **apart(i)) for i in (1, 2, 3)]),
        "system": str((tmp_path / "small.yaml").write_text(SYSTEM) and tmp_path / "small.yaml"),
    }


FORMATS = pytest.mark.parametrize("format", ["swf", "pm100", "kestrel"])


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@FORMATS
def test_compare_shows_recorded_schedule(traces, format):
    result = invoke("compare", traces[format], "--system", traces["system"], "--dispatcher", "fcfs,easy", "--json")
    assert result.exit_code == 0, result.output
    assert "as recorded" in result.stdout


@FORMATS
def test_drafts_system_file(traces, tmp_path, format):
    result = invoke("system", "from-slurm", traces[format], "--name", "guess", "--out", tmp_path / "guess.yaml")
    assert result.exit_code == 0, result.output
    assert load(traces[format], str(tmp_path / "guess.yaml")).jobs


@FORMATS
def test_whatif_reads_history(traces, format):
    history = read_history(traces[format])
    assert [record.start_s - record.submit_s for record in history.ran] == [10 if format == "swf" else 300] * 3
    assert history.time_zero_unix_s == (1_700_000_000 if format == "swf" else 0)


def test_same_jobs_in_three_formats_give_same_schedule(tmp_path):
    jobs = [(i, 40 * i, 37 * i % 500 + 60, 10 + i % 3, 1 + i % 3) for i in range(1, 40)]
    begun = {i: {"submit_time": at(s), "start_time": at(s), "end_time": at(s + run)} for i, s, run, *_ in jobs}
    write(
        tmp_path / "pm100.parquet",
        [
            pm100(i, **begun[i], eligible_time=at(s), time_limit=limit, num_nodes_alloc=n, num_cores_alloc=112 * n)
            | {"num_gpus_alloc": 8 * n, "mem_alloc": 0}
            for i, s, _, limit, n in jobs
        ],
    )
    write(
        tmp_path / "kestrel.parquet",
        [
            kestrel(str(i), **begun[i], wallclock_req=60 * limit, nodes_used=n, processors_used=112 * n)
            | {"gpus_requested": 8 * n}
            for i, _, _, limit, n in jobs
        ],
        gpus_requested=pa.int64(),
    )
    lines = [
        frontier(str(i), submit=str(s), wait="0", run=str(run), requested=str(60 * limit), gpus=str(8 * n))
        .replace(":4x112", f":{n}x112").replace(":excl:", ":shared:")
        for i, s, run, limit, n in jobs
    ]  # fmt: skip
    (tmp_path / "frontier.swf").write_text("\n".join(lines))
    (tmp_path / "small.yaml").write_text(SYSTEM)
    waits = [
        simulate(load(tmp_path / name, str(tmp_path / "small.yaml")), "easy").to_frame()["wait_s"].tolist()
        for name in ("pm100.parquet", "kestrel.parquet", "frontier.swf")
    ]
    assert waits[0] == waits[1] == waits[2]
    assert sum(waits[0]) > 0


def test_frame_has_power(traces):
    frame = simulate(load(traces["kestrel"], traces["system"]), "fcfs").to_frame()
    assert frame["power_w"].tolist() == [1200] * 3
    assert simulate(load(traces["swf"], traces["system"]), "fcfs").to_frame()["power_w"].isna().all()


def test_soft_walltimes_are_estimates(traces):
    workload = load(traces["swf"], traces["system"])
    assert [item.soft_walltime_s for item in workload.jobs] == [150] * 3
    result = simulate(workload, "easy", "soft-walltime")
    assert result.never_started_count == 0


def test_rejects_other_table_by_its_columns(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({name: [1] for name in "abcdefg"}), path)
    with pytest.raises(InputError) as error:
        open_trace(path)
    assert str(error.value) == (
        f"{path}: is a Parquet table with the columns a, b, c, d, e and 2 more, not a trace; "
        "tables read: kestrel, pm100"
    )


def test_zone_applies_to_accounting_data_only(traces):
    result = invoke("simulate", traces["pm100"], "--zone", "Europe/Rome")
    assert result.exit_code == 2
    assert "is read as pm100" in result.output
