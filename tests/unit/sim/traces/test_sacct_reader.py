import csv

import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.errors import InvalidTrace
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.traces.accounting_columns import XDMOD_COLUMNS, sacct_column_separator
from cpsched_sim.traces.job_run_numbering import DUPLICATE_NUMBER_REASON, RUN_OFFSET
from cpsched_sim.traces.sacct_reader import REORDERED_HEADER, SacctReader, parse_slurm_job_number
from cpsched_sim.traces.trace_dialect import TraceDialect
from cpsched_sim.traces.trace_record import UnitsRequest
from cpsched_sim.workloads.workload_loader import open_trace

NAMED = "JobID|User|JobName|Partition|Account|Submit|Start|End|Timelimit|NNodes|NCPUS|AllocTRES"


def row(id="7", start="2026-01-01T00:01:00", end="2026-01-01T00:11:00", limit="00:30:00", nodes="1", cpus="8", tres=""):
    return f"{id}|ada|relax|main|phys|2026-01-01T00:00:00|{start}|{end}|{limit}|{nodes}|{cpus}|{tres}"


@pytest.fixture
def read(tmp_path):
    def reader(*rows, lenient=False):
        path = tmp_path / "jobs.txt"
        path.write_text("\n".join([NAMED, *rows, ""]))
        return SacctReader(path, lenient)

    return reader


def test_line_becomes_record(read):
    record = next(iter(read(row(nodes="2", cpus="16", tres="billing=16,cpu=16,gres/gpu=4,mem=62.50G,node=2"))))
    assert (record.id, record.run_s, record.walltime_s) == (7, 600, 1800)
    assert (record.user, record.name, record.queue, record.account) == ("ada", "relax", "main", "phys")
    assert record.ask == UnitsRequest(
        2, (("cores", 8), ("memory_mib", 32_000), ("gpus", 2)), distinct=True, partition="main"
    )


@pytest.mark.parametrize(
    ("limit", "expected_s"),
    [
        ("1-02:03:04", 93_784), ("02:03:04", 7384), ("30:00", 1800), ("00:00:09.500", 9), ("1-02", 93_600),
        ("1 days 02:00:00", 93_600), ("0-00:05", 300),
        *((word, 600) for word in ("", "UNLIMITED", "Partition_Limit", "None", "N/A", "NaT", "INFINITE")),
    ],
)  # fmt: skip
def test_parses_time_limits(read, limit, expected_s):
    """In every spelling; a job without a limit has its run time."""
    assert next(iter(read(row(limit=limit)))).walltime_s == expected_s


def test_drops_steps_requeued_runs_and_jobs_that_did_not_run(read):
    reader = read(row(), row(), row("7.batch"), row("8", start="Unknown"), row("9", end="2026-01-01T00:01:00"))
    assert [record.id for record in reader] == [7]
    assert sum(reader.tally.dropped.values()) == 4


def test_file_without_header_has_xdmod_columns(tmp_path):
    values = dict.fromkeys(XDMOD_COLUMNS.split("|"), "") | {
        "JobID": "5_1", "JobIDRaw": "6", "User": "bob", "Submit": "2026-01-01T00:00:00", "Start": "2026-01-01T00:00:00",
        "End": "2026-01-01T00:00:09", "NNodes": "1", "NCPUS": "3", "Timelimit": "UNLIMITED",
    }  # fmt: skip
    path = tmp_path / "x.log"
    path.write_text("|".join(values.values()) + "\n")
    record = next(iter(SacctReader(path)))
    assert (record.id, record.user, record.run_s, record.ask) == (6, "bob", 9, UnitsRequest(1, (("cores", 3),)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1|2", ":2: fields: 2: must be 12"),
        (row().replace("2026-01-01T00:00:00", "Unknown"), ":2: Submit: Unknown: must be a time"),
        (row(start="yesterday"), ":2: Start: yesterday: must be a time"),
        (row(tres="cpu=1,mem=2X"), ":2: mem: 2X: must be a number followed by K, M, G, T or P"),
        (row(cpus="0"), "must be positive"),
        (row("x"), ":2: JobID: x: must be a whole number"),
        (row() + "|more", ":2: fields: 13: must be 12"),
        *(
            (row(tres=f"mem={amount}"), ":2: mem: ")
            for amount in (f"{MAX_AMOUNT + 1}M", "9" * 400 + "P", "M", "1MM", "-1M")
        ),
        (row(nodes="0"), "must be positive"),
        (row(tres="gres/gpu=-1"), "must not be negative"),
        *(
            (row(limit=limit), f":2: Timelimit: {limit}: must be a time like 1-02:00:00; minutes belong")
            for limit in ("1-00:00:00x", "x30:00", "30", "14400.0", "8h", "-1:00", "x")
        ),
    ],
)
def test_bad_lines_are_named_or_skipped(read, bad, message):
    with pytest.raises(InvalidTrace) as error:
        list(read(bad))
    assert message in str(error.value)
    assert list(read(bad, lenient=True)) == []


def test_names_missing_column(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text("JobID|User\n1|a\n")
    with pytest.raises(InvalidTrace) as error:
        SacctReader(path)
    names = "Submit, Start (or Wait), End (or Elapsed), Timelimit, NNodes, NCPUS"
    assert f"{path}:1: columns: {names}: is missing; add it to" in str(error.value)


CORES_8 = UnitsRequest(1, (("cores", 8),), partition="main")


@pytest.mark.parametrize("separator", [",", ";", "\t", "^", "~"])
def test_detects_separator_from_known_header_fields(tmp_path, separator):
    line = row(tres="cpu=8").replace("|", separator)
    path = tmp_path / "jobs.csv"
    path.write_text(f"{NAMED.replace('|', separator)}\n{line}\n\n")
    record = next(iter(open_trace(path)))
    assert (record.id, record.user, record.name, record.ask) == (
        7,
        "ada",
        "relax",
        UnitsRequest(1, (("cores", 8),), partition="main"),
    )


def test_field_with_separator_is_quoted(tmp_path):
    line = row(tres='"cpu=8,gres/gpu=2"').replace("|", ",")
    path = tmp_path / "jobs.csv"
    path.write_text(f"{NAMED.replace('|', ',')}\n{line}\n")
    assert next(iter(open_trace(path))).ask.each == (("cores", 8), ("gpus", 2))


def test_lines_may_end_with_separator(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|\n{row()}|\n")
    assert next(iter(open_trace(path))).id == 7


def test_job_name_in_last_column_may_contain_separator(tmp_path):
    columns = [name for name in NAMED.split("|") if name != "JobName"] + ["JobName"]
    values = dict(zip(NAMED.split("|"), row().split("|"), strict=True)) | {"JobName": "a|b|c"}
    path = tmp_path / "jobs.txt"
    path.write_text("|".join(columns) + "\n" + "|".join(values[name] for name in columns) + "\n")
    assert next(iter(open_trace(path))).name == "a|b|c"


def test_rejects_missing_field_despite_name_in_last_column(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{TIMES}|JobName\n{timed()}\n")
    with pytest.raises(InvalidTrace, match="fields: 10: must be 11"):
        list(SacctReader(path))


def test_equal_jobs_share_request_and_are_counted_each(read):
    reader = read(row("7", nodes="Unknown"), row("8", nodes="Unknown"), row("9", nodes="Unknown", tres="energy=9"))
    first, second, third = (record.ask for record in reader)
    assert first is second is third
    assert reader.tally.taken["the number of nodes is missing: read as 1"] == 3


def test_each_line_with_same_bad_amount_is_named(read):
    reader = read(row("7", cpus="x"), row("8", cpus="x"), lenient=True)
    assert list(reader) == []
    assert [example.split(":")[1:3] for example in reader.tally.examples] == [["2", " NCPUS"], ["3", " NCPUS"]]


def test_rounds_node_shares_up(read):
    record = next(iter(read(row(nodes="3", cpus="10", tres="mem=1000M,gres/gpu=4"))))
    assert record.ask.each == (("cores", 4), ("memory_mib", 334), ("gpus", 2))


def test_keeps_run_of_1_second(read):
    assert [record.run_s for record in read(row(end="2026-01-01T00:01:01"))] == [1]


def test_repeated_column_names_are_separate_columns(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|0|0\n{row()}|x|y\n")
    assert next(iter(open_trace(path))).id == 7


def test_drops_unstarted_job_for_any_state_word(read):
    reader = read(*(row(str(i), start=word) for i, word in enumerate(["", "Unknown", "None"])))
    assert list(reader) == []
    assert sum(reader.tally.dropped.values()) == 3


@pytest.mark.parametrize(
    ("amount", "mib"),
    [
        ("1024M", 1024), ("1024", 1), ("0.5G", 512), ("3K", 1), ("1025K", 2), ("2T", 2 * 1024**2), ("1P", 1024**3),
        ("1.M", 1), (f"{MAX_AMOUNT}M", MAX_AMOUNT), ("0", None),
    ],
)  # fmt: skip
def test_rounds_memory_up_to_mib_for_any_unit(read, amount, mib):
    """No memory is not an amount of nought: the job does not ask for any."""
    assert dict(next(iter(read(row(tres=f"mem={amount}")))).ask.each).get("memory_mib") == mib


@pytest.mark.parametrize(
    ("nodes", "cpus", "tres", "expected"),
    [
        ("1", "8", "", (1, 8)),
        ("1", "8", "node=2,cpu=4", (2, 2)),
        ("2", "8", "cpu=4", (2, 2)),
        ("1", "1", "", (1, 1)),
    ],
)
def test_allocation_precedes_columns(read, nodes, cpus, tres, expected):
    ask = next(iter(read(row(nodes=nodes, cpus=cpus, tres=tres)))).ask
    assert (ask.units, dict(ask.each)["cores"]) == expected
    assert ask.distinct is (ask.units > 1)


def test_request_replaces_missing_allocation(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|ReqTRES\n{row(tres='cpu=2')}|cpu=1,mem=7M,gres/gpu=1\n")
    assert next(iter(SacctReader(path))).ask.each == (("cores", 2), ("memory_mib", 7), ("gpus", 1))


@pytest.mark.parametrize(
    ("requested", "gpus"), [("cpu=3,node=3", None), ("cpu=3,gres/gpu=3", 1), ("cpu=48", 1), ("gres/gpu=2", 1), ("", 1)]
)
def test_gpus_of_whole_nodes_were_not_requested(tmp_path, requested, gpus):
    """`--exclusive` without GPUs on three nodes, of which one has two GPUs: no unit needs a GPU."""
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|ReqTRES\n{row(nodes='3', cpus='48', tres='cpu=48,gres/gpu=2,node=3')}|{requested}\n")
    (record,) = SacctReader(path)
    assert dict(record.ask.each).get("gpus") == gpus
    assert dict(record.ask.each)["cores"] == 16


def test_uses_raw_job_id_if_present(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|JobIDRaw\n{row('5_1')}|77\n{row('5_2')}|77.batch\n")
    reader = SacctReader(path)
    assert [record.id for record in reader] == [77]
    assert dict(reader.tally.dropped) == {"job step": 1}


def test_counts_dropped_lines_by_kind(read):
    reader = read(row(), row("8.0"), row(), "", "  ", NAMED, row("9", end="Unknown"), row("9"))
    assert [record.id for record in reader] == [7, 9], "a run that did not count leaves room for one that does"
    assert dict(reader.tally.dropped) == {
        "job step": 1,
        "repeats a job that was already read": 1,
        "still running when the file was written": 1,
    }


@pytest.mark.parametrize(
    ("line", "separator"),
    [
        ("JobID|User", "|"),
        ("jobidraw,user,other", ","),
        ('"JobID";"State"', ";"),
        (" JobID | User \r\n", "|"),
        ("JobID|colour", ""),
        ("User|State", ""),
        ("JobID", ""),
        ("1|2|3", ""),
    ],
)
def test_header_line_names_job_and_another_known_field(line, separator):
    assert sacct_column_separator(line) == separator


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("a|b|c|d", True),
        ("a|b|c", False),
        ("; a|b|c|d", False),
        (" #a|b|c|d", False),
        ("JobID,User", True),
        ("", False),
    ],
)
def test_recognises_sacct_by_first_line(line, ours):
    assert SacctReader.recognises(line) is ours


@pytest.mark.parametrize("column", ["JobID", "Submit", "Start", "End", "Timelimit", "NNodes", "NCPUS"])
def test_each_missing_required_column_is_named(tmp_path, column):
    path = tmp_path / "jobs.txt"
    path.write_text("|".join(name for name in NAMED.split("|") if name not in (column, "AllocTRES")) + "\n")
    with pytest.raises(
        InvalidTrace, match=f"columns: {column}(Raw)?( .or \\w+.)?: is missing; add it to sacct's --format"
    ):
        SacctReader(path, dialect=TraceDialect(columns="Account=Account"))


@pytest.mark.parametrize("column", ["User", "JobName", "Partition", "Account"])
def test_owner_columns_are_optional(tmp_path, column):
    names = NAMED.split("|")
    kept = [at for at, name in enumerate(names) if name != column]
    path = tmp_path / "jobs.txt"
    path.write_text("".join("|".join(line.split("|")[at] for at in kept) + "\n" for line in (NAMED, row())))
    (record,) = SacctReader(path)
    told = {"User": record.user, "JobName": record.name, "Partition": record.queue, "Account": record.account}
    assert {name for name, text in told.items() if text == ""} == {column}


@pytest.mark.parametrize("columns", ["NNodes", "NCPUS"])
def test_nodes_and_cpus_may_be_in_tres_only(tmp_path, columns):
    names = NAMED.split("|")
    kept = [at for at, name in enumerate(names) if name != columns]
    path = tmp_path / "jobs.txt"
    lines = (NAMED, row(nodes="2", cpus="8", tres="cpu=8,node=2"))
    path.write_text("".join("|".join(line.split("|")[at] for at in kept) + "\n" for line in lines))
    assert next(iter(SacctReader(path))).ask == UnitsRequest(2, (("cores", 4),), distinct=True, partition="main")


def test_unreadable_quoted_line_is_named(tmp_path):
    path = tmp_path / "jobs.csv"
    long = "x" * (csv.field_size_limit() + 1)
    path.write_text(f"{NAMED.replace('|', ',')}\n" + row(tres=f'"cpu=1,{long}"').replace("|", ",") + "\n")
    with pytest.raises(InvalidTrace, match=r":2: "):
        list(SacctReader(path))


@pytest.mark.parametrize(
    ("limit", "expected_s"),
    [("240", 14_400), ("240.0", 14_400), ("0.51", 31), ("1-02:00:00", 93_600), ("UNLIMITED", 600)],
)
def test_raw_limit_is_minutes_or_time(tmp_path, limit, expected_s):
    (tmp_path / "jobs.txt").write_text(f"{NAMED.replace('Timelimit', 'TimelimitRaw')}\n{row(limit=limit)}\n")
    assert next(iter(SacctReader(tmp_path / "jobs.txt"))).walltime_s == expected_s


@pytest.mark.parametrize("limit", ["8h", "-5", "soon"])
def test_rejects_invalid_raw_limit(tmp_path, limit):
    (tmp_path / "jobs.txt").write_text(f"{NAMED.replace('Timelimit', 'TimelimitRaw')}\n{row(limit=limit)}\n")
    with pytest.raises(InvalidTrace, match=f":2: TimelimitRaw: {limit}: must be minutes, or a time"):
        list(SacctReader(tmp_path / "jobs.txt"))


# ------------------------------------------------------------------------------------------ when jobs come and start

TIMES = "JobIDRaw|Submit|Eligible|Start|End|Elapsed|State|Timelimit|NNodes|NCPUS"
DAY = "2026-01-01T"


def timed(
    id="7",
    submit="00:00:00",
    eligible="00:00:00",
    start="00:01:00",
    end="00:11:00",
    elapsed="00:10:00",
    state="COMPLETED",
):
    at = [f"{DAY}{time}" if time[:1].isdigit() and len(time) == 8 else time for time in (submit, eligible, start, end)]
    return "|".join([id, *at, elapsed, state, "00:30:00", "1", "8"])


@pytest.fixture
def read_times(tmp_path):
    def reader(*rows, **dialect):
        path = tmp_path / "times.txt"
        path.write_text("\n".join([TIMES, *rows, ""]))
        return SacctReader(path, dialect=TraceDialect(**dialect))

    return reader


MIDNIGHT_S = 1767225600


def test_keeps_recorded_start(read_times):
    (record,) = read_times(timed())
    assert (record.submit_s, record.start_s, record.run_s) == (MIDNIGHT_S, MIDNIGHT_S + 60, 600)


def test_job_arrives_when_eligible_by_default(read_times):
    reader = read_times(timed(eligible="00:00:40"))
    assert next(iter(reader)).submit_s == MIDNIGHT_S + 40
    assert reader.tally.to_sentences() == ["in 1 job: arrival is Eligible, which is later than Submit"]
    assert next(iter(read_times(timed(eligible="00:00:40"), arrival="submit"))).submit_s == MIDNIGHT_S


def test_eligible_time_may_equal_start(read_times):
    (record,) = read_times(timed(eligible="00:01:00"))
    assert (record.submit_s, record.start_s) == (MIDNIGHT_S + 60, MIDNIGHT_S + 60)
    (record,) = read_times(timed(start="00:00:00"))
    assert (record.submit_s, record.start_s) == (MIDNIGHT_S, MIDNIGHT_S)


@pytest.mark.parametrize("eligible", ["Unknown", "", "00:01:01", "2025-12-31T23:59:59"])
def test_impossible_eligible_time_is_not_arrival(read_times, eligible):
    """Held jobs have none, and none is later than the start."""
    assert next(iter(read_times(timed(eligible=eligible)))).submit_s == MIDNIGHT_S


def test_start_before_submission_is_not_recorded(read_times):
    reader = read_times(timed(submit="00:02:00", eligible="00:02:00"))
    assert next(iter(reader)).start_s is None
    assert reader.tally.to_sentences() == ["in 1 job: the start is before the submission: read as not recorded"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"start": "Unknown", "state": "CANCELLED by 1001"}, "cancelled while waiting"),
        ({"start": "None", "state": "CANCELLED"}, "cancelled while waiting"),
        ({"start": "00:11:00", "elapsed": "00:00:00", "state": "CANCELLED+"}, "cancelled while waiting"),
        ({"start": "Unknown", "end": "Unknown", "state": "PENDING"}, "still waiting when the file was written"),
        ({"end": "Unknown", "state": "RUNNING"}, "still running when the file was written"),
        ({"end": "Unknown", "state": ""}, "still running when the file was written"),
        ({"start": "00:11:00", "elapsed": "00:00:00"}, "run time below 1 s"),
        ({"start": "", "state": "DEADLINE"}, "never started"),
    ],
)
def test_drops_unstarted_job_with_reason_from_state(read_times, changes, why):
    reader = read_times(timed(**changes))
    assert list(reader) == []
    assert dict(reader.tally.dropped) == {why: 1}


def test_reports_missing_limit(read):
    reader = read(row(limit="UNLIMITED"))
    assert next(iter(reader)).walltime_s == 600
    assert reader.tally.to_sentences() == ["in 1 job: walltime is the run time, because the limit is missing"]


def test_limits_may_be_minutes_and_elapsed_seconds(tmp_path):
    path = tmp_path / "jobs.txt"
    header = TIMES.replace("Timelimit", "TimelimitRaw").replace("Elapsed", "ElapsedRaw")
    path.write_text(f"{header}\n{timed(elapsed='600').replace('00:30:00', '45')}\n")
    (record,) = SacctReader(path)
    assert (record.walltime_s, record.run_s) == (2700, 600)


def test_reports_elapsed_time_with_too_many_digits(read_times):
    with pytest.raises(InvalidTrace, match=":2: Elapsed: 9999"):
        list(read_times(timed(elapsed="9" * 5000)))


# ------------------------------------------------------------------------------------------ runs and numbers


def test_each_run_of_requeued_job_is_job(read_times):
    first = timed(state="NODE_FAIL")
    second = timed(submit="00:11:00", eligible="00:13:00", start="00:14:00", end="00:15:00", elapsed="00:01:00")
    reader = read_times(first, second)
    assert [(r.id, r.submit_s - MIDNIGHT_S, r.run_s) for r in reader] == [(7, 0, 600), (RUN_OFFSET + 7, 780, 60)]
    assert "in 1 job: is another run of a requeued job" in reader.tally.to_sentences()


def test_further_runs_of_task_have_own_ids(read):
    reader = read(row("7_3"), row("7_3", start="2026-01-01T00:05:00"))
    assert [record.id for record in reader] == [-70000003, -70000003 - RUN_OFFSET]


def test_line_common_to_two_files_counts_once(read_times):
    reader = read_times(timed(), timed("8"), timed())
    assert [record.id for record in reader] == [7, 8]
    assert dict(reader.tally.dropped) == {"repeats a job that was already read": 1}


NODED = f"{TIMES}|NodeList"


def noded(*lines):
    return "".join(f"{line}\n" for line in (NODED, *lines))


def test_tasks_with_id_of_array_are_jobs(tmp_path):
    """Their index was cut off: they begin together, and end apart or are on other nodes."""
    lines = [f"{timed('500', end=f'00:1{at % 9 + 1}:00', elapsed='')}|n{at // 9}" for at in range(600)]
    (tmp_path / "jobs.txt").write_text(noded(*lines, lines[3], f"{timed('500', start='00:30:00', end='00:40:00')}|n1"))
    reader = SacctReader(tmp_path / "jobs.txt")
    ids = [record.id for record in reader]
    assert (len(ids), len(set(ids)), ids[:3], ids[-1]) == (601, 601, [500, -5005000001, -5005000002], 500 + RUN_OFFSET)
    assert dict(reader.tally.dropped) == {"repeats a job that was already read": 1}
    assert reader.tally.taken[DUPLICATE_NUMBER_REASON] == 599


def test_repeated_line_without_nodes_is_dropped(tmp_path):
    (tmp_path / "jobs.txt").write_text(noded(f"{timed()}|n1", f"{timed()}|", f"{timed('8')}|", f"{timed('8')}|n2"))
    assert [record.id for record in SacctReader(tmp_path / "jobs.txt")] == [7, 8]


# ------------------------------------------------------------------------------------------ lines and header lines

LAST = f"{TIMES}|User|JobName"


def named(name, id="7", user="ada"):
    return f"{timed(id)}|{user}|{name}"


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("first\nsecond", "first second"), ("a\n\nb|c", "a b|c"), ("a\rb", "a b"), ("x\n8", "x 8"),
        ("form\ffeed", "form\ffeed"), ("two\u2028parts", "two\u2028parts"), ("\x85\v", "\x85\v"),
    ],
)  # fmt: skip
def test_line_break_in_last_column_name_ends_no_job(tmp_path, name, read_as):
    (tmp_path / "jobs.txt").write_text(f"{LAST}\n{named(name)}\n{named('next', '8')}\n", newline="")
    assert [(job.id, job.name, job.user) for job in SacctReader(tmp_path / "jobs.txt")] == [
        (7, read_as, "ada"), (8, "next", "ada"),
    ]  # fmt: skip


def test_line_break_in_middle_column_name_ends_no_job(tmp_path):
    header = LAST.replace("User|JobName", "JobName|User")
    text = f"{header}\n{timed()}|first\nsecond|ada\n{timed('8')}|next|bob\n"
    (tmp_path / "jobs.txt").write_text(text)
    assert [(job.name, job.user) for job in SacctReader(tmp_path / "jobs.txt")] == [
        ("first second", "ada"), ("next", "bob"),
    ]  # fmt: skip


def test_truncated_job_is_rejected_not_part_of_name(tmp_path):
    (tmp_path / "jobs.txt").write_text(f"{LAST}\n{named('x')}\n8|2026-01-01T00:00:00\n")
    with pytest.raises(InvalidTrace, match=":3: fields: 2: must be 12"):
        list(SacctReader(tmp_path / "jobs.txt"))


@pytest.mark.parametrize("separator", ["|", ","])
def test_further_header_line_sets_columns_below(tmp_path, separator):
    """Two exports joined with cat; the second has NCPUS before NNodes."""
    names = "JobIDRaw|User|Submit|Start|End|{}|Timelimit|JobName"
    line = "{}|ann|2026-10-01T08:00:00|2026-10-01T08:01:00|2026-10-01T09:01:00|{}|04:00:00|a"
    first = [names.format("NNodes|NCPUS"), line.format(1, "2|16")]
    second = [names.format("NCPUS|NNodes"), line.format(2, "16|2")]
    text = "\n".join([*first, *(each.replace("|", separator) for each in second), *first[:1], line.format(3, "2|16")])
    (tmp_path / "jobs.txt").write_text(text)
    reader = SacctReader(tmp_path / "jobs.txt")
    assert [(job.id, job.ask) for job in reader] == [
        (id, UnitsRequest(2, (("cores", 8),), distinct=True)) for id in (1, 2, 3)
    ]
    assert reader.tally.ignored[REORDERED_HEADER] == 2


def test_finds_renamed_columns_in_further_header(tmp_path):
    lines = [row("7").split("|"), row("8").split("|")]
    header = NAMED.replace("JobID|User", "no|owner").split("|")
    text = "\n".join(["|".join(header), "|".join(lines[0]), "|".join(header[::-1]), "|".join(lines[1][::-1])])
    (tmp_path / "jobs.txt").write_text(text)
    reader = SacctReader(tmp_path / "jobs.txt", dialect=TraceDialect("JobIDRaw=no,User=owner"))
    assert [(job.id, job.user, job.name) for job in reader] == [(7, "ada", "relax"), (8, "ada", "relax")]


def test_further_header_must_match_columns_given_by_position(tmp_path):
    words = NAMED.replace("|", ",")
    other = NAMED.replace("NNodes|NCPUS", "NCPUS|NNodes")
    (tmp_path / "jobs.txt").write_text(f"{row('7')}\n{NAMED}\n{row('8')}\n{other}\n")
    reader = iter(SacctReader(tmp_path / "jobs.txt", dialect=TraceDialect(words)))
    assert [next(reader).id, next(reader).id] == [7, 8]
    with pytest.raises(InvalidTrace, match=r":4: columns: .*: must match the first line"):
        next(reader)


def test_name_resembling_header_line_is_name(tmp_path):
    (tmp_path / "jobs.txt").write_text(
        f"{LAST}\n{named('JobID|Submit|Start|End')}\n{named('JobIDRaw', user='User')}x\n"
    )
    assert len(list(SacctReader(tmp_path / "jobs.txt"))) == 1, "the second line has the number of the first"


def test_rejects_jobs_of_second_cluster(tmp_path):
    lines = [f"{timed('7')}|lab", f"{timed('8')}|", f"{timed('7')}|gpu"]
    (tmp_path / "jobs.txt").write_text("\n".join([f"{TIMES}|Cluster", *lines]))
    with pytest.raises(InvalidTrace, match=":4: Cluster: gpu: must be lab, as on earlier lines"):
        list(SacctReader(tmp_path / "jobs.txt"))


def test_reads_table_with_all_values_quoted(tmp_path):
    quoted = ["\n".join(f'"{cell}"' for cell in line.split("|")).replace("\n", ",") for line in (NAMED, row())]
    (tmp_path / "jobs.csv").write_text("\n".join(quoted))
    assert [(job.id, job.user, job.walltime_s) for job in SacctReader(tmp_path / "jobs.csv")] == [(7, "ada", 1800)]


@pytest.mark.parametrize(("nodes", "cpus", "units", "cores"), [("1K", "2K", 1024, 2), ("2.0", "16.0", 2, 8)])
def test_amounts_may_have_unit_or_decimal_point(read, nodes, cpus, units, cores):
    ask = next(iter(read(row(nodes=nodes, cpus=cpus)))).ask
    assert (ask.units, ask.each) == (units, (("cores", cores),))


def test_bounds_runs_of_job_by_id_space(read_times):
    rows = [timed(start=f"00:{at // 60 + 10:02d}:{at % 60:02d}", end="01:00:00", elapsed="") for at in range(463)]
    with pytest.raises(InvalidTrace, match=r":464: job: 7: must not have more than 462 runs"):
        list(read_times(*rows))


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("7_3", -70000003), ("7+1", -79000001), ("67108863_4000000", -671088634000000), ("7_[1-3%2]", 7)],
)
def test_tasks_and_components_have_own_ids(text, number):
    assert parse_slurm_job_number(text) == number


@pytest.mark.parametrize("text", ["7_", "x", "", "-7", "7.batch", "٧"])
def test_rejects_invalid_job_id(text):
    with pytest.raises(InvalidValue, match="must be a whole number"):
        parse_slurm_job_number(text)


def test_counts_each_pending_task_of_one_line(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}\n{row('7_[4-9%2]', start='Unknown', end='Unknown')}\n{row('7_3')}\n")
    reader = SacctReader(path)
    assert [record.id for record in reader] == [-70000003]
    assert sum(reader.tally.dropped.values()) == 6


# ------------------------------------------------------------------------------------------ zones and clocks


def test_times_use_given_zone(read_times):
    assert next(iter(read_times(timed(), zone="Europe/Berlin"))).submit_s == MIDNIGHT_S - 3600


FALL = "2026-10-25T"


def over_the_change(start, end, elapsed):
    return f"7|{FALL}01:00:00|{FALL}01:00:00|{FALL}{start}|{FALL}{end}|{elapsed}|COMPLETED|05:00:00|1|8"


@pytest.mark.parametrize(("elapsed", "start_h", "run_h"), [("00:30:00", 0.5, 0.5), ("01:30:00", 0.5, 1.5)])
def test_elapsed_resolves_repeated_hour(read_times, elapsed, start_h, run_h):
    """02:30 to 03:00 on the day on which 03:00 became 02:00: half an hour, or one and a half."""
    reader = read_times(over_the_change("02:30:00", "03:00:00", elapsed), zone="Europe/Berlin")
    (record,) = reader
    assert record.run_s == run_h * 3600
    assert reader.tally.to_sentences() == [
        "in 1 job: a time is in the hour that is repeated at a clock change, resolved by Elapsed and the order of times"
    ]


def test_first_possible_time_counts_without_elapsed(read_times):
    reader = read_times(over_the_change("02:30:00", "03:00:00", ""), zone="Europe/Berlin")
    assert next(iter(reader)).run_s == 5400
    assert reader.tally.to_sentences() == [
        "in 1 job: a time is in the hour that is repeated at a clock change, read as the first of the two"
    ]


def test_elapsed_detects_clock_change_without_zone(read_times):
    """02:50 to 02:10: run backwards, unless the clock was put back meanwhile."""
    reader = read_times(over_the_change("02:50:00", "02:10:00", "00:20:00"))
    assert next(iter(reader)).run_s == 1200
    assert "the clock changed, so set --zone" in reader.tally.to_sentences()[0]


@pytest.mark.parametrize("elapsed", ["00:01:00", "00:10:00"])
def test_suspended_time_belongs_to_run(read_times, elapsed):
    """Elapsed does not count it, so it may be off by anything but the hour of a clock."""
    (record,) = read_times(timed(end="02:11:00", elapsed=elapsed))
    assert record.run_s == 2 * 3600 + 600


def test_rejects_time_skipped_by_clock(read_times):
    line = timed().replace(DAY, "2026-03-29T").replace("T00:01:00", "T02:30:00")
    with pytest.raises(InvalidTrace, match=r"Start: 2026-03-29T02:30:00: does not exist in Europe/Berlin"):
        list(read_times(line, zone="Europe/Berlin"))


def test_unix_times_and_offsets_need_no_zone(read_times):
    line = timed().replace(f"{DAY}00:01:00", str(MIDNIGHT_S + 60)).replace(f"{DAY}00:11:00", f"{DAY}01:11:00+01:00")
    assert next(iter(read_times(line, zone="Asia/Tokyo"))).start_s == MIDNIGHT_S + 60


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "../etc/passwd", "/etc/passwd", "\0", "Europe"])
def test_rejects_unknown_zone(zone):
    with pytest.raises(InvalidValue, match="--zone"):
        TraceDialect(zone=zone)


def test_rejects_unknown_arrival():
    with pytest.raises(InvalidValue, match="--arrival=soon: must be eligible or submit"):
        TraceDialect(arrival="soon")


# ------------------------------------------------------------------------------------------ amounts


def test_gpus_counted_by_type_are_gpus(read):
    each = next(iter(read(row(tres="cpu=8,gres/gpu:a100=2,gres/gpu:v100=1")))).ask.each
    assert dict(each)["gpus"] == 3
    assert dict(next(iter(read(row(tres="gres/gpu=2,gres/gpu:a100=2")))).ask.each)["gpus"] == 2


def test_missing_node_count_is_1(read):
    reader = read(row(nodes="Unknown"), row("8", nodes=""))
    assert [record.ask.units for record in reader] == [1, 1]
    assert reader.tally.to_sentences() == ["in 2 jobs: the number of nodes is missing: read as 1"]


def test_keeps_node_list(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(f"{NAMED}|NodeList\n{row()}|n[1-2]\n")
    assert next(iter(SacctReader(path))).nodes == "n[1-2]"


def test_wait_and_run_columns_give_start_and_end(tmp_path):
    """As in tables that have no moments but the submission."""
    (tmp_path / "jobs.csv").write_text(
        "JobID,SubmitTime,WaitTime,RunTime,State,NNodes,NCPUS,TimelimitRaw\n"
        "7,2026-01-01 00:00:00,60,600,COMPLETED,1,8,30\n8,2026-01-01 00:00:00,,,CANCELLED,1,8,30\n"
    )
    reader = open_trace(tmp_path / "jobs.csv")
    (record,) = reader
    at = (record.submit_s - MIDNIGHT_S, record.start_s - MIDNIGHT_S, record.run_s, record.walltime_s)
    assert at == (0, 60, 600, 1800)
    assert dict(reader.tally.dropped) == {"cancelled while waiting": 1}
