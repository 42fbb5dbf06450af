"""PBS's accounting log: lines as a server writes them, and the result of each."""

import gzip
import re
from datetime import UTC, datetime

import pytest

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.traces.job_run_numbering import RUN_OFFSET
from cpsched_sim.traces.pbs_accounting import FORGED_FIELD_REASON, PbsAccountingReader
from cpsched_sim.traces.pbs_lines import (
    DIFFERENT_CHUNKS_NOTE,
    EMPTY_REQUEST_NOTE,
    OTHER_RESOURCES_NOTE,
    PbsRecordFields,
    parse_pbs_size_mib,
)
from cpsched_sim.traces.trace_record import MISSING_LIMIT_NOTE, TraceDialect, TraceRecord, UnitsRequest
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.workloads.workload_loader import load, open_trace

T0 = 1_795_426_800
"""2026-11-23 09:40:00 UTC."""


def stamp(at_s, ahead_s=0):
    return datetime.fromtimestamp(at_s + ahead_s, UTC).strftime("%m/%d/%Y %H:%M:%S")


def line(kind="E", id="7.vm", at=60, ahead_s=0, account="", select="1:ncpus=2:mem=1gb", more="", **fields):
    """A record written `at` seconds after T0; `fields` change or (None) take away what it says."""
    said = {
        "user": "ada", "group": "ada", **({"account": f'"{account}"'} if account else {}),
        "project": "_pbs_project_default", "jobname": "relax", "queue": "workq", "ctime": T0, "qtime": T0, "etime": T0,
        "start": T0 + 10, "exec_host": "n1/0*2", "exec_vnode": "(n1:ncpus=2:mem=1048576kb)", "Resource_List.ncpus": 2,
        "Resource_List.place": "free", "Resource_List.select": select, "Resource_List.walltime": "01:00:00",
        "end": T0 + at if kind in "ER" else None,
    } | {name.replace("__", "."): value for name, value in fields.items()}  # fmt: skip
    words = " ".join(f"{name}={value}" for name, value in said.items() if value is not None)
    return f"{stamp(T0 + at, ahead_s)};{kind};{id};{words}{more}"


def queued(id="7.vm", at=0, **fields):
    return line("Q", id, at, **{"start": None, "exec_host": None, "exec_vnode": None, **fields})


@pytest.fixture
def read(tmp_path):
    def reader(*lines, lenient=False, dialect=TraceDialect()):
        path = tmp_path / "20261123"
        path.write_text("\n".join([*lines, ""]))
        found = PbsAccountingReader(path, lenient, dialect)
        return found, list(found)

    return reader


@pytest.fixture
def read_one(read):
    """Return the only record."""

    def record(*lines, **more):
        (found,) = read(*lines, **more)[1]
        return found

    return record


def test_ended_job_becomes_record(read_one):
    ask = UnitsRequest(1, (("cores", 2), ("memory_mib", 1024)), partition="workq")
    assert read_one(queued(), line("S", at=10), line(account="phys")) == TraceRecord(
        7, T0, 50, 3600, ask, "ada", "relax", "workq", "phys", T0 + 10, "n1"
    )


@pytest.mark.parametrize(
    ("select", "place", "units"),
    [
        ("2:ncpus=4", "scatter", UnitsRequest(2, (("cores", 4),), distinct=True, partition="workq")),
        ("2:ncpus=4", "vscatter:excl", UnitsRequest(2, (("cores", 4),), distinct=True, exclusive=True, partition="workq")),  # noqa: E501
        ("1:ncpus=4+1:ncpus=4", "free", UnitsRequest(2, (("cores", 4),), partition="workq")),
        ("2:ncpus=4:ngpus=1", "pack:exclhost",
         UnitsRequest(1, (("cores", 8), ("gpus", 2)), exclusive=True, partition="workq")),
        ("3:mem=1048576kb", "free:shared", UnitsRequest(3, (("cores", 1), ("memory_mib", 1024)), partition="workq")),
    ],
)  # fmt: skip
def test_select_and_place_become_units(read_one, select, place, units):
    assert read_one(line(select=select, Resource_List__place=place)).ask == units


def torque(nodes, exec_host, **fields):
    """A record of Torque's: no `select`, no `place`; `nodes` and a slot of `exec_host` for each core."""
    gone = dict.fromkeys(("Resource_List__select", "Resource_List__place", "exec_vnode", "Resource_List__ncpus"))
    return line(exec_host=exec_host, **(gone | {"Resource_List__nodes": nodes, **fields}))


@pytest.mark.parametrize(
    ("nodes", "exec_host", "fields", "units", "nodes_had"),
    [
        ("1", "n1/7", {}, UnitsRequest(1, (("cores", 1),)), "n1"),
        ("2:ib:ppn=8", "+".join(f"n{n}/{at}" for n in (1, 2) for at in range(8)), {"Resource_List__ncpus": 1},
         UnitsRequest(2, (("cores", 8),), distinct=True), "n1,n2"),
        ("n3:ppn=2+n4:ppn=2", "n3/0-1+n4/0-1", {"Resource_List__mem": "3gb"},
         UnitsRequest(2, (("cores", 2), ("memory_mib", 1536)), distinct=True), "n3,n4"),
        ("1:ppn=4:gpus=2#shared", "n1/0-3", {"Resource_List__pmem": "1gb"},
         UnitsRequest(1, (("cores", 4), ("memory_mib", 4096), ("gpus", 2))), "n1"),
        ("2:ppn=4", "n1/0-7", {}, UnitsRequest(2, (("cores", 4),)), "n1"),
        ("1:ppn=8+2:ppn=2", "n1/0-7+n2/0-1+n3/0-1", {}, UnitsRequest(3, (("cores", 4),), distinct=True), "n1,n2,n3"),
        (None, "n1/0-3,7+n2/0", {}, UnitsRequest(2, (("cores", 3),), distinct=True), "n1,n2"),
        (None, "n1/0*4", {"Resource_List__ncpus": 4}, UnitsRequest(1, (("cores", 4),)), "n1"),
    ],
)  # fmt: skip
def test_torque_nodes_and_slots_become_units(read_one, nodes, exec_host, fields, units, nodes_had):
    job = read_one(torque(nodes, exec_host, **fields))
    assert (job.ask, job.nodes) == (units._replace(partition="workq"), nodes_had)


def test_reports_unknown_torque_node_properties(read):
    reader, _ = read(torque("1:ib:ppn=2", "n1/0-1"))
    assert reader.tally.taken[OTHER_RESOURCES_NOTE] == 1
    with pytest.raises(InvalidTrace, match="ppn: two: must be a whole number"):
        read(torque("1:ppn=two", "n1/0"))


def test_old_torque_task_is_subjob(read_one):
    assert read_one(line(id="7-3.vm")).id == -70000003


def test_mixed_chunks_become_units_on_allocated_hosts(read):
    reader, (job,) = read(line(select="1:ncpus=2+2:ncpus=1:mem=100mb", exec_host="n1/0*2+n1/1+n2/0"))
    assert job.ask == UnitsRequest(2, (("cores", 2), ("memory_mib", 100)), distinct=True, partition="workq")
    assert reader.tally.taken[DIFFERENT_CHUNKS_NOTE] == 1


def test_job_without_select_uses_sums_or_one_core(read):
    reader, jobs = read(line(select=None), line(id="8.vm", select="1:ncpus=0"))
    assert [job.ask.each for job in jobs] == [(("cores", 2),), (("cores", 1),)]
    assert reader.tally.taken[EMPTY_REQUEST_NOTE] == 1


def test_subjobs_are_jobs_and_array_is_dropped(read):
    array = {"array_indices": "1-3"}
    reader, jobs = read(queued("7[].vm", **array), line(id="7[3].vm"), line(id="7[].vm", **array))
    assert [job.id for job in jobs] == [-70_000_003]
    assert reader.tally.dropped == {"the array as a whole: its subjobs are read as jobs": 1}


def test_each_run_of_requeued_job_is_job(read):
    _, (first, second) = read(queued(), line("S", at=10), line("R", at=30), line("S", at=40, start=T0 + 40),
                              line(at=90, start=T0 + 40))  # fmt: skip
    assert (first.id, first.submit_s, first.run_s) == (7, T0, 20)
    assert (second.id, second.submit_s, second.start_s, second.run_s) == (7 + RUN_OFFSET, T0 + 30, T0 + 40, 50)


@pytest.mark.parametrize(
    ("eligible_s", "arrival", "submit_s"),
    [(T0 + 5, "eligible", T0 + 5), (T0 + 5, "submit", T0), (0, "eligible", T0)],
)
def test_job_arrives_when_eligible_or_submitted(read_one, eligible_s, arrival, submit_s):
    assert read_one(line(etime=eligible_s), dialect=TraceDialect(arrival=arrival)).submit_s == submit_s


def test_job_without_limit_has_its_run_time(read):
    reader, (job,) = read(line(Resource_List__walltime=None))
    assert (job.walltime_s, reader.tally.taken[MISSING_LIMIT_NOTE]) == (50, 1)


def test_counts_jobs_that_have_not_ended(read):
    deleted = f"{stamp(T0 + 20)};D;8.vm;requestor=ada@vm"
    reader, jobs = read(queued("7.vm"), line("S", "7.vm", 10), queued("8.vm"), deleted, queued("9.vm"))
    assert jobs == []
    assert reader.tally.dropped == {
        "still running when the file was written": 1, "deleted while waiting": 1,
        "still waiting when the file was written": 1,
    }  # fmt: skip


def test_job_deleted_while_running_counts_once(read):
    reader, jobs = read(queued(), line("S", at=10), f"{stamp(T0 + 60)};D;7.vm;requestor=ada@vm", line())
    assert (len(jobs), reader.tally.dropped.total()) == (1, 0)


def test_skips_other_records_and_reports_suspensions(read):
    others = [f"{stamp(T0)};{kind};R1.vm;requestor=ada@vm" for kind in "UYBFKk"]
    license, altered = f"{stamp(T0)};L;license;floating license", f"{stamp(T0)};a;7.vm;Priority=5"
    reader, jobs = read(*others, license, altered, f"{stamp(T0)};z;7.vm;x=1", f"{stamp(T0)};z;7.vm;x=1", line())
    assert len(jobs) == 1
    assert reader.tally.taken == {"was suspended; this time counts as run time": 1}


def test_file_concatenated_with_itself_counts_once(read):
    reader, jobs = read(line(), line())
    assert (len(jobs), reader.tally.dropped) == (1, {"repeats a job that was already read": 1})


def test_forged_account_drops_only_its_own_job(read):
    reader, jobs = read(line(account='x" start=5 end=9 y="\''), line(id="8.vm"))
    assert [job.id for job in jobs] == [8]
    assert reader.tally.dropped == {FORGED_FIELD_REASON: 1}


@pytest.mark.parametrize(
    ("end", "others", "dropped"),
    [("y", [(7, "ada")], {}), ('y" project=p start=1 jobname=z x="', [], {FORGED_FIELD_REASON: 1})],
)
def test_account_with_line_breaks_forges_no_record(read, end, others, dropped):
    forged = line(id="9.vm", user="bob")
    reader, jobs = read(line(account=f"x\n{forged}\n{end}"), line(id="8.vm"))
    assert [(job.id, job.user) for job in jobs] == [*others, (8, "ada")]
    assert (reader.tally.dropped, reader.line) == (dropped, 4)


@pytest.mark.parametrize("kind", "ESQR")
@pytest.mark.parametrize(
    ("field", "text", "account"),
    [
        ("project", "a\nb", "a b"), ("project", "\n\na\n", "a"), ("project", '"a b\n' + line(id="9.vm") + '"', None),
        ("project", '"a', '"a'), ("project", "a\tb", "a\tb"),
    ],
)  # fmt: skip
def test_line_breaks_of_user_text_do_not_split_record(read, kind, field, text, account):
    """PBS writes a project without a blank without quotes, and escapes no line break."""
    changed = line(kind, id="7.vm", **{"project": "phys", field: text})
    _, jobs = read(changed, line(id="8.vm"))
    ran = {"E": [7], "R": [7]}.get(kind, [])
    assert [job.id for job in jobs] == [*ran, 8]
    assert account is None or not ran or jobs[0].account.strip() == account


@pytest.mark.parametrize(
    "damage", [(" end=", " eXd="), ("ctime=", "cXime="), ("jobname=", "jXbname="), ("11/23", "1X/23")]
)
def test_damaged_record_takes_no_other_with_it(read, damage):
    _, jobs = read(line(id="6.vm"), line(id="7.vm").replace(*damage), line(id="8.vm"), lenient=True)
    assert {6, 8} <= {job.id for job in jobs}


def test_quoted_values_are_one_field():
    fields = PbsRecordFields('account="a b" Resource_List.software=\'c "d\' e=f')
    assert fields == {"account": "a b", "Resource_List.software": 'c "d', "e": "f"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("what is this", ":2: line: what is this: must be like 11/23/2026"),
        (line(id="x.vm"), ":2: job: x.vm: must be like 7.server"),
        (line(start="soon"), ":2: start: soon: must be seconds since 1970"),
        (line(ctime=None), ":2: ctime: : must be set"),
        (line(Resource_List__walltime="1h"), ":2: walltime: 1h: must be a time like 36:00:00"),
        (line(select="1:ncpus=2:mem=1xb"), ":2: mem: 1xb: must be a size like 100mb"),
        (line(select="1:ncpus=many"), ":2: ncpus: many: must be a whole number"),
        (line(select="0:ncpus=1"), ":2: Resource_List.select: 0:ncpus=1: must have from 1"),
        (line(select="2:ncpus"), ":2: Resource_List.select: 2:ncpus: must be like"),
        ("13/45/2026 09:40:00" + line()[19:], ":2: time: 2026-13-45T09:40:00: must be a time"),
    ],
)
def test_bad_lines_are_named_or_skipped(read, bad, message):
    with pytest.raises(InvalidTrace, match=re.escape(message)):
        read(line(id="1.vm"), bad)
    _, jobs = read(line(id="1.vm"), bad, line(id="2.vm"), lenient=True)
    assert [job.id for job in jobs] == [1, 2]


def test_folder_of_daily_files_is_one_trace(tmp_path):
    (tmp_path / "20261123").write_text(line(id="8.vm", at=90) + "\n")
    (tmp_path / "20261122.gz").write_bytes(gzip.compress((queued("8.vm") + "\n" + line() + "\n").encode()))
    (tmp_path / "notes.txt").write_text("no accounting")
    reader = open_trace(tmp_path)
    assert [job.id for job in reader] == [7, 8]
    assert reader.tally.dropped.total() == 0
    one = load(tmp_path, "eurora").origin["trace_sha256"]
    (tmp_path / "20261123").write_text(line(id="9.vm", at=90) + "\n")
    assert load(tmp_path, "eurora").origin["trace_sha256"] != one
    (tmp_path / "20261124").write_text("\nbroken\n")
    with pytest.raises(InvalidTrace, match=r"20261124:2: line: broken"):
        list(open_trace(tmp_path))


def test_rejects_folder_without_daily_files(tmp_path):
    with pytest.raises(InputError, match="seems to be a directory, not a trace"):
        open_trace(tmp_path)
    with pytest.raises(InputError, match="is a directory without files named by date"):
        open_trace(tmp_path, format="pbs")


def test_rejects_column_options(tmp_path):
    with pytest.raises(InputError, match="has no columns"):
        PbsAccountingReader(tmp_path / "x", dialect=TraceDialect(columns="JobIDRaw=1"))


@pytest.mark.parametrize(
    ("text", "mib"), [("1b", 1), ("1048576kb", 1024), ("10mw", 80), ("2GB", 2048), ("1048577", 2), ("0", 0)]
)
def test_parses_sizes(text, mib):
    assert parse_pbs_size_mib(text) == mib


def test_whatif_includes_cancelled_pending_and_running_jobs(tmp_path):
    """The clock of these lines is an hour ahead of UTC, which a deletion's moment shows."""
    ahead = {"ahead_s": 3600}
    deleted = f"{stamp(T0 + 20, 3600)};D;8.vm;requestor=ada@vm"
    (tmp_path / "log").write_text("\n".join([
        line(id="1.vm", **ahead), queued("7.vm", **ahead), line("S", "7.vm", 10, **ahead), queued("8.vm", **ahead),
        deleted, queued("9.vm", **ahead), queued("10.vm", Resource_List__walltime=None, **ahead), "",
    ]))  # fmt: skip
    history = read_history(tmp_path / "log")
    assert [record.id for record in history.ran] == [1]
    assert [(job.id, job.start_s, job.left_s) for job in history.open] == [
        (8, None, T0 + 20), (7, T0 + 10, None), (9, None, None),
    ]  # fmt: skip
    assert history.reader.tally.dropped == {"still waiting when the file was written": 1}
