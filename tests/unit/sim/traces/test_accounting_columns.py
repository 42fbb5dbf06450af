"""The meaning of columns: from the header line, or as set by the user."""

import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.errors import InvalidTrace
from cpsched_sim.traces.accounting_columns import AccountingColumns
from cpsched_sim.traces.sacct_reader import SacctReader
from cpsched_sim.traces.trace_record import TraceDialect
from cpsched_sim.workloads.workload_loader import open_trace

FIRST = "Job Number;owner;queued at;began;ended;limit;nodes;cores;what"
THEIRS = "JobID=Job Number,User=owner,Submit=queued at,Start=began,End=ended,Timelimit=limit,NNodes=nodes,NCPUS=cores"
LINE = "7;ada;2026-01-01T00:00:00;2026-01-01T00:01:00;2026-01-01T00:11:00;00:30:00;1;8;x"


IN_ORDER = "JobIDRaw,User,Submit,Start,End,Timelimit,NNodes,NCPUS,-"
BY_NUMBER = "JobIDRaw=1,User=2,Submit=3,Start=4,End=5,Timelimit=6,NNodes=7,NCPUS=8"
GPU_CLUSTER = "no,queued,waited,took,limit,hosts,cpus,who\n7,2026-10-01T00:00:00,30,120,01:00:00,1,8,ada\n"
OF_GPU_CLUSTER = (
    "JobIDRaw=no,SubmitTime=queued,WaitTime=waited,RunTime=took,Timelimit=limit,NNodes=hosts,AllocCPUS=cpus,User=who"
)


@pytest.mark.parametrize(
    ("text", "columns", "run_s"),
    [
        (f"{FIRST}\n{LINE}\n", THEIRS, 600),
        # ignores case and blanks
        (f"{FIRST}\n{LINE}\n", THEIRS.upper().replace(",", " , ").replace("=", " = "), 600),
        # skips a repeated header line
        (f"\n{FIRST}\n{LINE}\n{FIRST}\n", THEIRS, 600),
        # a file without a header line; a line without a digit is one
        (f"{LINE}\n", IN_ORDER, 600),
        (f"{FIRST}\n{LINE}\n", IN_ORDER, 600),
        (f"{LINE}\n", BY_NUMBER, 600),
        (f"{FIRST}\n{LINE}\n", BY_NUMBER, 600),
        # traces of GPU clusters have waits and run times
        (GPU_CLUSTER, OF_GPU_CLUSTER, 120),
    ],
)
def test_maps_given_columns(tmp_path, text, columns, run_s):
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    (record,) = SacctReader(path, dialect=TraceDialect(columns=columns))
    assert (record.id, record.user, record.run_s, dict(record.ask.each)["cores"]) == (7, "ada", run_s, 8)


def test_lists_missing_required_columns():
    columns = AccountingColumns.of("JobIDRaw|User|Submit|NCPUS")
    assert columns.missing_required_columns() == ["Start (or Wait)", "End (or Elapsed)", "Timelimit", "NNodes"]


def test_one_sacct_column_may_replace_another():
    columns = AccountingColumns.of("JobID|User|Submit|Planned", "User=Planned")
    assert (columns.index_of("User"), columns.index_of("Submit")) == (3, 2)


def test_uses_fallback_column_if_one_is_missing():
    columns = AccountingColumns.of("JobID|AllocCPUS|ReqCPUS|TimelimitRaw|ElapsedRaw|ReqNodes")
    places = [columns.index_of(name) for name in ("JobIDRaw", "NCPUS", "Timelimit", "Elapsed", "NNodes", "User")]
    assert places == [0, 1, 3, 4, 5, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("User=boss", "--columns=boss: is not in the header line: Job Number, owner, queued at"),
        ("Usr=owner", "--columns=Usr: must be one of the known columns: JobIDRaw, .*; did you mean 'User'"),
        ("User=owner,Submit", "--columns=Submit: must be NAME=COLUMN, like the others"),
        ("User=", "--columns=User=: must be NAME=COLUMN"),
        ("User=10", "--columns=User=10: the first line has 9 fields"),
        ("User=0", "--columns=User=0: the first line has 9 fields"),
        ("JobID,User", "--columns=2 names: must list every column: the first line has 9 fields between ';'"),
        ("JobID,Colour", "--columns=Colour: must be one of the known columns"),
    ],
)
def test_rejects_columns_that_do_not_match_file(words, message):
    with pytest.raises(InvalidValue, match=message):
        AccountingColumns.of(FIRST, words)


def test_blank_separated_columns_name_missing_option(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID           JobName  Partition    Account\n------- ------- ------ -----\n7 x main lab\n")
    with pytest.raises(InvalidTrace, match=r"jobs.txt:1: columns: JobID .*: must be separated: .*--parsable2"):
        open_trace(path)


def test_names_missing_required_column(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"\n{FIRST}\n{LINE}\n")
    with pytest.raises(InvalidTrace) as error:
        SacctReader(path, dialect=TraceDialect(columns=THEIRS.replace("End=ended,", "")))
    assert str(error.value).startswith(f"{path}:2: columns: End (or Elapsed): is missing")
