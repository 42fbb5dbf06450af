from datetime import UTC, date, datetime

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import CpschedError, InvalidValue
from cpsched.model import Request
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.simulation import simulate
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.workloads.arrival_date_range import ArrivalDateRange
from cpsched_sim.workloads.workload_loader import load, open_trace, read_jobs
from tests.traces import BLUE, KIT, KTH, XDMOD, trace
from tests.unit.sim.traces.test_sacct_reader import NAMED, row
from tests.unit.sim.traces.test_swf import line

HEADER = "; MaxProcs: 8\n"


@pytest.fixture
def swf(tmp_path):
    """Write a trace with these lines."""

    def written(*lines, header=HEADER):
        path = tmp_path / "t.swf"
        path.write_text(header + "\n".join([*lines, ""]))
        return path

    return written


def test_sorts_jobs_by_arrival_then_file_order(swf):
    workload = load(swf(line("4", submit="9"), line("2", submit="5"), line("3", submit="9")))
    assert [entry.job.id for entry in workload.jobs] == [2, 4, 3]
    assert "sorted by submit time: 1 job was" in workload.notes[0]
    assert load(swf(line("4", submit="9"), line("2", submit="9"), line("3", submit="10"))).notes == ()


def test_infeasible_job_is_error_with_line_or_skipped(swf):
    path = swf(line("1"), line("2", processors="9"))
    with pytest.raises(InvalidTrace, match=r"t\.swf:3: units: 9: must be at most 8"):
        load(path)
    workload = load(path, lenient=True)
    assert len(workload.jobs) == 1
    assert workload.notes[0].startswith("skipped 1 job: units")


def test_reading_stops_after_max_jobs_before_bad_line(swf):
    assert len(load(swf(line(), "garbage"), max_jobs=1).jobs) == 1


@pytest.mark.parametrize(("header", "lines"), [("", []), (HEADER, []), (HEADER, [line(run="0")])])
def test_rejects_trace_without_jobs(swf, header, lines):
    with pytest.raises(InputError, match=r"no jobs to replay|no MaxProcs|seems to be empty, not a trace"):
        load(swf(*lines, header=header))


@pytest.mark.parametrize(
    ("name", "system", "jobs", "processors"),
    [(KTH, None, 28_481, 100), (BLUE, None, 232_542, 1152), (KIT, "kit-forhlr2", 25_326, 24_048)],
)
def test_filtered_shared_traces_are_unchanged(name, system, jobs, processors):
    workload = load(trace(name), system)
    assert len(workload.jobs) == jobs
    assert int(workload.cluster.capacity[:, 0].sum()) == processors
    assert workload.notes == ()
    assert len({id(entry.job.request) for entry in workload.jobs}) < 400


def a_system(folder, partitions="{}", each="cores: 16", count=4):
    path = folder / "site.yaml"
    path.write_text(
        "name: site\nresources: [cores, memory_mib, gpus]\nunits: { rule: cores }\n"
        f"node_types: {{ n: {{ count: {count}, each: {{ {each} }} }} }}\npartitions: {partitions}\n"
    )
    return str(path)


def test_recognises_accounting_data_by_separators(tmp_path):
    system = a_system(tmp_path, each="cores: 16, memory_mib: 64000, gpus: 2", count=40)
    assert len(load(trace(XDMOD), system).jobs) == 4024


def accounting(folder, *rows):
    path = folder / "jobs.txt"
    path.write_text("\n".join([NAMED, *rows, ""]))
    return path


def test_counts_fifth_of_broken_lines_and_shows_first(tmp_path):
    rows = [row(str(i)) if i % 5 else f"broken {i}" for i in range(1, 101)]
    workload = load(accounting(tmp_path, *rows), a_system(tmp_path), lenient=True)
    assert len(workload.jobs) == 80
    skipped, *broken = workload.notes
    assert skipped.startswith("skipped 20 jobs: fields must be 12")
    assert [text.split(":")[2] for text in broken] == ["6", "11", "16", "21", "26"]


def test_rejects_mostly_broken_file_even_if_lenient(tmp_path):
    half = [row(str(i)) if i % 2 else f"broken {i}" for i in range(1, 101)]
    assert len(load(accounting(tmp_path, *half), a_system(tmp_path), lenient=True).jobs) == 50
    rule = r"52 of 103 lines are broken, too many to skip.*The first error: .*jobs.txt:3: "
    with pytest.raises(InputError, match=rule):
        load(accounting(tmp_path, *half, "one", "more"), a_system(tmp_path), lenient=True)


def test_skips_few_broken_lines_of_short_file(tmp_path):
    path = accounting(tmp_path, row(), *(["broken"] * 10))
    assert len(load(path, a_system(tmp_path), lenient=True).jobs) == 1
    path.write_text(path.read_text() + "broken\n")
    with pytest.raises(InputError, match="11 of 13 lines are broken"):
        load(path, a_system(tmp_path), lenient=True)


def test_too_large_jobs_are_no_broken_lines(tmp_path):
    rows = [row(str(i), cpus="17") for i in range(9)]
    workload = load(accounting(tmp_path, *rows, row("9")), a_system(tmp_path), lenient=True)
    assert workload.notes == (
        "skipped 9 jobs: units must be at most 0, the number of units of 17 cores that fit on site",
    )


def test_merges_reasons_beyond_10(tmp_path):
    rows = [row(str(i), cpus=str(16 + i)) for i in range(13)]
    workload = load(accounting(tmp_path, *rows), a_system(tmp_path), lenient=True)
    assert len(workload.notes) == 11
    assert workload.notes[-1] == "skipped 2 jobs: 2 other reasons"


def test_too_large_job_names_fix(tmp_path):
    path = accounting(tmp_path, row(nodes="5", cpus="80"))
    with pytest.raises(InvalidTrace) as error:
        load(path, a_system(tmp_path, "{ main: [n] }"))
    assert str(error.value) == (
        f"{path}:2: units: 5: must be at most 4, the number of units of 16 cores in main that fit on site "
        "(correct the system, or omit such jobs with lenient)"
    )


def test_reports_partitions_missing_in_system(tmp_path):
    path = accounting(tmp_path, row(), row("8").replace("main", "g\x1b[31mpu"))
    assert load(path, a_system(tmp_path)).notes == (), "a system without partitions means any"
    (note,) = load(path, a_system(tmp_path, "{ main: [n] }")).notes
    assert note == r"in 1 job: the partition (g\x1b[31mpu) is not one of site: any node may be used"


def test_accounting_options_are_part_of_origin(tmp_path):
    path, system = accounting(tmp_path, row()), a_system(tmp_path)
    plain, zoned = load(path, system), load(path, system, dialect=TraceDialect(zone="Europe/Berlin"))
    assert zoned.jobs[0].job.submit_s == plain.jobs[0].job.submit_s - 3600
    assert zoned.origin["dialect"] == {"columns": "", "zone": "Europe/Berlin", "arrival": "eligible"}
    assert plain.origin != zoned.origin


def test_rejects_accounting_options_for_other_traces(swf):
    with pytest.raises(InputError, match="is read as swf; --columns, --zone and --arrival require accounting data"):
        load(swf(line()), dialect=TraceDialect(zone="Europe/Berlin"))


def test_given_columns_make_table_accounting_data(tmp_path):
    path = tmp_path / "jobs.csv"
    renamed = NAMED.replace("JobID", "number").replace("Submit", "queued").replace("|", ",")
    path.write_text(f"{renamed}\n{row().replace('|', ',')}\n")
    (job,) = read_jobs(open_trace(path, dialect=TraceDialect(columns="JobID=number,Submit=queued")))
    assert (job.job.id, job.recorded_start_s - job.job.submit_s) == (7, 60)


def test_loads_jobs_without_system_with_same_request(tmp_path, swf):
    path = swf(line("1", processors="3"), line("2", submit="5"))
    assert read_jobs(open_trace(path)) == load(path).jobs
    large = swf(line("1", processors="900"), line("2", submit="5"), header="")
    assert [job.job.request.units for job in read_jobs(open_trace(large))] == [900, 4]
    records = accounting(tmp_path, row(cpus="12", tres="mem=1G,gres/gpu=3"))
    assert read_jobs(open_trace(records))[0].job.request == Request(1, (12, 1024, 3))


# ------------------------------------------------------------------------------------------ parts by date

DAY_S = 86_400
DATED = f"; MaxProcs: 8\n; UnixStartTime: {20_000 * DAY_S}\n"
"""Day 20,000 since 1970 is 2024-10-04."""


@pytest.fixture
def five_days(tmp_path):
    """A job at noon of each of five days, and the header that says which days."""
    path = tmp_path / "days.swf"
    rows = [line(str(day + 1), submit=str(day * DAY_S + DAY_S // 2)) for day in range(5)]
    path.write_text(DATED + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("from_", "to", "zone", "ids"),
    [
        ("2024-10-05", "2024-10-07", "", [2, 3]), ("", "2024-10-05T12:00", "", [1]),
        ("2024-10-07T12:00", "", "", [4, 5]), ("+2d", "", "", [3, 4, 5]), ("+24h", "+48h", "", [2, 3]),
        ("", "+1d", "", [1]),
        ("2024-10-05T14:00", "+1d", "Europe/Berlin", [2]), ("2024-10-05T14:00+03:00", "+1d", "", [2]),
    ],
)  # fmt: skip
def test_dates_select_part_of_trace(five_days, from_, to, zone, ids):
    between = ArrivalDateRange(from_, to, zone)
    workload = load(five_days, between=between)
    assert [entry.job.id for entry in workload.jobs] == ids
    assert workload.origin["between"] == {"from_": from_, "to": to, "zone": zone}
    assert [entry.job.id for entry in read_jobs(open_trace(five_days), between=between, max_jobs=1)] == ids[:1]


@pytest.mark.parametrize(
    ("from_", "to", "message"),
    [
        ("soon", "", "--from=soon: must be a date such as"),
        ("", "3d", "--to=3d: must be a date such as"),
        ("2024-10-06", "2024-10-05", "--from, --to=.*: the first must be before the second"),
        ("2024-11-01", "+9d", r"no job arrives in that range; the trace covers 2024-10-04 to 2024-10-08"),
    ],
)
def test_rejects_invalid_part(five_days, from_, to, message):
    with pytest.raises((InvalidValue, InputError), match=message):
        load(five_days, between=ArrivalDateRange(from_, to))


def test_trace_without_dates_has_parts_by_day_only(five_days):
    five_days.write_text(five_days.read_text().replace("UnixStartTime", "Note"))
    assert len(load(five_days, between=ArrivalDateRange("+1d", "+2d")).jobs) == 2
    with pytest.raises(InvalidValue, match="--from=2024-10-05: requires a trace with dates"):
        load(five_days, between=ArrivalDateRange("2024-10-05"))


@pytest.mark.parametrize(
    ("from_", "to", "zone", "ids"),
    [
        (date(2024, 10, 5), datetime(2024, 10, 7), "", [2, 3]),
        (datetime(2024, 10, 5, 14, tzinfo=UTC), "+2d", "", [3, 4]),
        ("2024-10-05T14:00", "+1d", "Europe/Berlin", [2]),
        ("", "", "", [1, 2, 3, 4, 5]),
    ],
)
def test_dates_select_part_of_workload(five_days, from_, to, zone, ids):
    assert [entry.job.id for entry in load(five_days).between(from_, to, zone).jobs] == ids


def test_lists_parts_of_workload_in_order(five_days):
    workload = load(five_days)
    cut = workload.head(3).between("2024-10-05")
    assert [entry.job.id for entry in cut.jobs] == [2, 3]
    assert cut.origin["parts"] == [3, {"from_": "2024-10-05", "to": "", "zone": ""}]
    assert (cut.origin["trace_sha256"], "parts" in workload.origin) == (workload.origin["trace_sha256"], False)


def test_rejects_part_without_jobs(five_days):
    with pytest.raises(InputError, match="no job arrives in that range; the trace covers 2024-10-04 to 2024-10-08"):
        load(five_days).between("2025-01-01", "+1d")
    with pytest.raises(InvalidValue, match="jobs=0: must be positive"):
        load(five_days).head(0)


def test_dispatcher_sees_date_of_trace(five_days):
    seen = []

    class Watching(EasyDispatcher):
        def decide(self, snapshot, need="plan"):
            seen.append(snapshot.unix_s)
            return super().decide(snapshot, need)

    simulate(load(five_days).head(1), Watching())
    assert seen[0] == 20_000 * DAY_S + DAY_S // 2


def test_load_options_are_keywords(five_days):
    with pytest.raises(TypeError, match="positional"):
        load(five_days, "pool", True)


def test_workload_repr_is_one_line(five_days):
    """Not with all of its jobs: a notebook shows it."""
    words = "5 jobs, 2024-10-04 to 2024-10-08, on pool: 1 node, 8 processors"
    workload = load(five_days)
    shown = repr(workload), workload._repr_html_()
    assert shown == (f"<Workload days.swf: {words}>", f"<p><b>days.swf</b>: {words}</p>")
    five_days.write_text(five_days.read_text().replace("UnixStartTime", "Note"))
    assert "5 jobs, 4.0 days, on pool" in repr(load(five_days))


def test_missing_file_is_also_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.swf: No such file"):
        load(tmp_path / "gone.swf")
    with pytest.raises(CpschedError):
        load(tmp_path)
