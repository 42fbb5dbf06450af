import csv
import re

import pytest

from cpsched.errors import InvalidValue
from cpsched_sim.errors import InvalidTrace
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.traces.accounting_columns import XDMOD_COLUMNS, sacct_column_separator
from cpsched_sim.traces.job_run_numbering import DUPLICATE_NUMBER_REASON, RUN_OFFSET
from cpsched_sim.traces.sacct_reader import REORDERED_HEADER, SacctReader, parse_slurm_job_number
from cpsched_sim.traces.trace_record import TraceDialect, TraceRecord, UnitsRequest
from cpsched_sim.workloads.workload_loader import open_trace

NAMED = "JobID|User|JobName|Partition|Account|Submit|Start|End|Timelimit|NNodes|NCPUS|AllocTRES"
TIMES = "JobIDRaw|Submit|Eligible|Start|End|Elapsed|State|Timelimit|NNodes|NCPUS"
LAST = f"{TIMES}|User|JobName"
DAY = "2026-01-01T"
MIDNIGHT_S = 1767225600
LONG_TEXT = "x" * (csv.field_size_limit() + 1)


def row(id="7", start="2026-01-01T00:01:00", end="2026-01-01T00:11:00", limit="00:30:00", nodes="1", cpus="8", tres=""):
    """A line with the columns `NAMED`."""
    return f"{id}|ada|relax|main|phys|2026-01-01T00:00:00|{start}|{end}|{limit}|{nodes}|{cpus}|{tres}"


def timed(
    id="7", submit="00:00:00", eligible="00:00:00", start="00:01:00", end="00:11:00", elapsed="00:10:00",
    state="COMPLETED",
):  # fmt: skip
    """A line with the columns `TIMES`."""
    at = [f"{DAY}{time}" if time[:1].isdigit() and len(time) == 8 else time for time in (submit, eligible, start, end)]
    return "|".join([id, *at, elapsed, state, "00:30:00", "1", "8"])


def named(name, id="7", user="ada"):
    """A line with the columns `LAST`."""
    return f"{timed(id)}|{user}|{name}"


@pytest.fixture
def read(tmp_path):
    """Write lines below a header, and return their reader."""

    def reader(*lines, header=NAMED, lenient=None, **dialect):
        path = tmp_path / "jobs.txt"
        path.write_text("\n".join([header, *lines, ""]), newline="")
        options = {} if lenient is None else {"lenient": lenient}
        return SacctReader(path, dialect=TraceDialect(**dialect), **options)

    return reader


def columns_of(lines, names):
    """Return lines with the columns `NAMED`, with these of them only."""
    rows = (dict(zip(NAMED.split("|"), line.split("|"), strict=True)) for line in lines)
    return ["|".join(values[name] for name in names) for values in rows]


# ------------------------------------------------------------------------------------------ one line


def test_line_becomes_record(read_one):
    line = row(nodes="2", cpus="16", tres="billing=16,cpu=16,gres/gpu=4,mem=62.50G,node=2")
    ask = UnitsRequest(2, (("cores", 8), ("memory_mib", 32_000), ("gpus", 2)), distinct=True, partition="main")
    assert read_one(f"{line}|n[1-2]", header=f"{NAMED}|NodeList") == TraceRecord(
        7, MIDNIGHT_S, 600, 1800, ask, "ada", "relax", "main", "phys", MIDNIGHT_S + 60, "n[1-2]"
    )


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
    ("column", "limit", "expected_s"),
    [
        *(("Timelimit", limit, expected_s) for limit, expected_s in {
            "1-02:03:04": 93_784, "02:03:04": 7384, "30:00": 1800, "00:00:09.500": 9, "1-02": 93_600,
            "1 days 02:00:00": 93_600, "0-00:05": 300,
        }.items()),
        *(("Timelimit", word, 600) for word in ("", "UNLIMITED", "Partition_Limit", "None", "N/A", "NaT", "INFINITE")),
        *(("TimelimitRaw", limit, expected_s) for limit, expected_s in {
            "240": 14_400, "240.0": 14_400, "0.51": 31, "1-02:00:00": 93_600, "UNLIMITED": 600,
        }.items()),
    ],
)  # fmt: skip
def test_parses_time_limits(read, column, limit, expected_s):
    """In every spelling, or in minutes; a job without a limit has its run time."""
    reader = read(row(limit=limit), header=NAMED.replace("Timelimit", column))
    assert [record.walltime_s for record in reader] == [expected_s]
    missing = ["in 1 job: walltime is the run time, because the limit is missing"]
    assert reader.tally.to_sentences() == (missing if expected_s == 600 else [])


def test_limits_may_be_minutes_and_elapsed_seconds(read_one):
    header = TIMES.replace("Timelimit", "TimelimitRaw").replace("Elapsed", "ElapsedRaw")
    record = read_one(timed(elapsed="600").replace("00:30:00", "45"), header=header)
    assert (record.walltime_s, record.run_s) == (2700, 600)


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
    with pytest.raises(InvalidTrace, match=re.escape(message)):
        list(read(bad))
    assert list(read(bad, lenient=True)) == []


def test_each_line_with_same_bad_amount_is_named(read):
    reader = read(row("7", cpus="x"), row("8", cpus="x"), lenient=True)
    assert list(reader) == []
    assert [example.split(":")[1:3] for example in reader.tally.examples] == [["2", " NCPUS"], ["3", " NCPUS"]]


@pytest.mark.parametrize(
    ("header", "lines", "message"),
    [
        (f"{TIMES}|JobName", [timed()], ":2: fields: 10: must be 11"),
        (LAST, [named("x"), "8|2026-01-01T00:00:00"], ":3: fields: 2: must be 12"),
        *(
            (NAMED.replace("Timelimit", "TimelimitRaw"), [row(limit=limit)],
             f":2: TimelimitRaw: {limit}: must be minutes, or a time")
            for limit in ("8h", "-5", "soon")
        ),
        (TIMES, [timed(elapsed="9" * 5000)], ":2: Elapsed: 9999"),
        (f"{TIMES}|Cluster", [f"{timed('7')}|lab", f"{timed('8')}|", f"{timed('7')}|gpu"],
         ":4: Cluster: gpu: must be lab, as on earlier lines"),
        (TIMES, [timed(start=f"00:{at // 60 + 10:02d}:{at % 60:02d}", end="01:00:00", elapsed="") for at in range(463)],
         ":464: job: 7: must not have more than 462 runs"),
        (NAMED.replace("|", ","), [row(tres=f'"cpu=1,{LONG_TEXT}"').replace("|", ",")], ":2: "),
    ],
)  # fmt: skip
def test_rejects_files(read, header, lines, message):
    with pytest.raises(InvalidTrace, match=re.escape(message)):
        list(read(*lines, header=header))


# ------------------------------------------------------------------------------------------ columns


def test_names_missing_column(read):
    with pytest.raises(InvalidTrace) as error:
        read("1|a", header="JobID|User")
    names = "Submit, Start (or Wait), End (or Elapsed), Timelimit, NNodes, NCPUS"
    assert f"jobs.txt:1: columns: {names}: is missing; add it to" in str(error.value)


@pytest.mark.parametrize("column", ["JobID", "Submit", "Start", "End", "Timelimit", "NNodes", "NCPUS"])
def test_each_missing_required_column_is_named(read, column):
    header = "|".join(name for name in NAMED.split("|") if name not in (column, "AllocTRES"))
    missing = f"columns: {column}(Raw)?( .or \\w+.)?: is missing; add it to sacct's --format"
    with pytest.raises(InvalidTrace, match=missing):
        read(header=header, columns="Account=Account")


@pytest.mark.parametrize("column", ["User", "JobName", "Partition", "Account", "NNodes", "NCPUS"])
def test_owner_columns_are_optional_and_counts_may_be_in_tres(read_one, column):
    header, line = columns_of(
        [NAMED, row(nodes="2", cpus="8", tres="cpu=8,node=2")], [name for name in NAMED.split("|") if name != column]
    )
    record = read_one(line, header=header)
    told = {"User": record.user, "JobName": record.name, "Partition": record.queue, "Account": record.account}
    assert {name for name, text in told.items() if text == ""} == {column} & told.keys()
    assert (record.ask.units, record.ask.each) == (2, (("cores", 4),))


@pytest.mark.parametrize(
    ("header", "line"),
    [
        *((NAMED.replace("|", each), row(tres="cpu=8").replace("|", each)) for each in (",", ";", "\t", "^", "~")),
        (NAMED.replace("|", ","), row(tres='"cpu=8,energy=2"').replace("|", ",")),
        (f"{NAMED}|", f"{row()}|"),
        (f"{NAMED}|0|0", f"{row()}|x|y"),
        *([",".join(f'"{cell}"' for cell in line.split("|")) for line in (NAMED, row())],),
    ],
)
def test_detects_separator_from_known_header_fields(read, header, line):
    """Fields may be quoted, lines may end with a separator, and equal names are separate columns."""
    (record,) = open_trace(read(line, header=header).path)
    told = (record.id, record.user, record.name, record.walltime_s, record.ask)
    assert told == (7, "ada", "relax", 1800, UnitsRequest(1, (("cores", 8),), partition="main"))


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


def test_job_name_in_last_column_may_contain_separator(read):
    order = [name for name in NAMED.split("|") if name != "JobName"] + ["JobName"]
    header, line = columns_of([NAMED, row()], order)
    (record,) = open_trace(read(f"{line}|b|c", header=header).path)
    assert record.name == "relax|b|c"


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("first\nsecond", "first second"), ("a\n\nb|c", "a b|c"), ("a\rb", "a b"), ("x\n8", "x 8"),
        ("form\ffeed", "form\ffeed"), ("two\u2028parts", "two\u2028parts"), ("\x85\v", "\x85\v"),
    ],
)  # fmt: skip
def test_line_break_in_last_column_name_ends_no_job(read, name, read_as):
    reader = read(named(name), named("next", "8"), header=LAST)
    assert [(job.id, job.name, job.user) for job in reader] == [(7, read_as, "ada"), (8, "next", "ada")]


def test_line_break_in_middle_column_name_ends_no_job(read):
    header = LAST.replace("User|JobName", "JobName|User")
    reader = read(f"{timed()}|first\nsecond|ada", f"{timed('8')}|next|bob", header=header)
    assert [(job.name, job.user) for job in reader] == [("first second", "ada"), ("next", "bob")]


@pytest.mark.parametrize("separator", ["|", ","])
def test_further_header_line_sets_columns_below(read, separator):
    """Two exports joined with cat; the second has NCPUS before NNodes."""
    names = "JobIDRaw|User|Submit|Start|End|{}|Timelimit|JobName"
    line = "{}|ann|2026-10-01T08:00:00|2026-10-01T08:01:00|2026-10-01T09:01:00|{}|04:00:00|a"
    first, second = names.format("NNodes|NCPUS"), [names.format("NCPUS|NNodes"), line.format(2, "16|2")]
    below = [each.replace("|", separator) for each in second]
    reader = read(line.format(1, "2|16"), *below, first, line.format(3, "2|16"), header=first)
    ask = UnitsRequest(2, (("cores", 8),), distinct=True)
    assert [(job.id, job.ask) for job in reader] == [(1, ask), (2, ask), (3, ask)]
    assert reader.tally.ignored[REORDERED_HEADER] == 2


def test_finds_renamed_columns_in_further_header(read):
    header = NAMED.replace("JobID|User", "no|owner")
    backwards = ["|".join(each.split("|")[::-1]) for each in (header, row("8"))]
    reader = read(row("7"), *backwards, header=header, columns="JobIDRaw=no,User=owner")
    assert [(job.id, job.user, job.name) for job in reader] == [(7, "ada", "relax"), (8, "ada", "relax")]


def test_further_header_must_match_columns_given_by_position(read):
    other = NAMED.replace("NNodes|NCPUS", "NCPUS|NNodes")
    reader = iter(read(NAMED, row("8"), other, header=row("7"), columns=NAMED.replace("|", ",")))
    assert [next(reader).id, next(reader).id] == [7, 8]
    with pytest.raises(InvalidTrace, match=r":4: columns: .*: must match the first line"):
        next(reader)


def test_name_resembling_header_line_is_name(read):
    reader = read(named("JobID|Submit|Start|End"), f"{named('JobIDRaw', user='User')}x", header=LAST)
    assert len(list(reader)) == 1, "the second line has the number of the first"


# ------------------------------------------------------------------------------------------ when jobs come and start


@pytest.mark.parametrize(
    ("changes", "arrival", "submit_s", "start_s", "notes"),
    [
        ({}, "eligible", 0, 60, []),
        ({"eligible": "00:00:40"}, "eligible", 40, 60, ["in 1 job: arrival is Eligible, which is later than Submit"]),
        ({"eligible": "00:00:40"}, "submit", 0, 60, []),
        ({"eligible": "00:01:00"}, "submit", 0, 60, []),
        ({"start": "00:00:00", "elapsed": ""}, "eligible", 0, 0, []),
        ({"submit": "00:02:00", "eligible": "00:02:00"}, "eligible", 120, None,
         ["in 1 job: the start is before the submission: read as not recorded"]),
        *(({"eligible": text}, "eligible", 0, 60, []) for text in ("Unknown", "", "00:01:01", "2025-12-31T23:59:59")),
    ],
)  # fmt: skip
def test_job_arrives_when_eligible_by_default(read, changes, arrival, submit_s, start_s, notes):
    """Held jobs have no eligible time, and none is later than the start."""
    reader = read(timed(**changes), header=TIMES, arrival=arrival)
    ((found_submit_s, found_start_s),) = [(record.submit_s, record.start_s) for record in reader]
    assert found_submit_s == MIDNIGHT_S + submit_s
    assert found_start_s == (None if start_s is None else MIDNIGHT_S + start_s)
    assert reader.tally.to_sentences() == notes


def test_eligible_time_may_equal_start(read_one):
    record = read_one(timed(eligible="00:01:00"), header=TIMES)
    assert (record.submit_s, record.start_s) == (MIDNIGHT_S + 60, MIDNIGHT_S + 60)


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
def test_drops_unstarted_job_with_reason_from_state(read, changes, why):
    reader = read(timed(**changes), header=TIMES)
    assert list(reader) == []
    assert dict(reader.tally.dropped) == {why: 1}


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


# ------------------------------------------------------------------------------------------ runs and numbers

OTHER = {"submit": "00:11:00", "eligible": "00:13:00", "start": "00:14:00", "end": "00:15:00", "elapsed": "00:01:00"}
REPEATED = "repeats a job that was already read"


@pytest.mark.parametrize(
    ("header", "lines", "ids", "dropped"),
    [
        (NAMED, [row(), row(), row("7.batch"), row("8", start="Unknown"), row("9", end="2026-01-01T00:01:00")], [7],
         {REPEATED: 1, "job step": 1, "never started": 1, "run time below 1 s": 1}),
        (NAMED, [row("7", start=""), row("8", start="Unknown"), row("9", start="None")], [], {"never started": 3}),
        (NAMED, [row(), row("8.0"), row(), "", "  ", NAMED, row("9", end="Unknown"), row("9")], [7, 9],
         {"job step": 1, REPEATED: 1, "still running when the file was written": 1}),
        (NAMED, [row("7_[4-9%2]", start="Unknown", end="Unknown"), row("7_3")], [-70000003],
         {"never started": 6}),
        (NAMED, [row("7_3"), row("7_3", start="2026-01-01T00:05:00")], [-70000003, -70000003 - RUN_OFFSET], {}),
        (NAMED, [row(end="2026-01-01T00:01:01")], [7], {}),
        (f"{NAMED}|JobIDRaw", [f"{row('5_1')}|77", f"{row('5_2')}|77.batch"], [77], {"job step": 1}),
        (TIMES, [timed(), timed("8"), timed()], [7, 8], {REPEATED: 1}),
        (TIMES, [timed(state="NODE_FAIL"), timed(**OTHER)], [7, RUN_OFFSET + 7], {}),
        (f"{TIMES}|NodeList", [f"{timed()}|n1", f"{timed()}|", f"{timed('8')}|", f"{timed('8')}|n2"], [7, 8],
         {REPEATED: 2}),
    ],
)  # fmt: skip
def test_counts_dropped_lines_and_numbers_runs(read, header, lines, ids, dropped):
    """A run that did not count leaves room for one that does, and each pending task of a line counts."""
    reader = read(*lines, header=header)
    assert [record.id for record in reader] == ids
    assert dict(reader.tally.dropped) == dropped


def test_each_run_of_requeued_job_is_job(read):
    reader = read(timed(state="NODE_FAIL"), timed(**OTHER), header=TIMES)
    assert [(r.submit_s - MIDNIGHT_S, r.run_s) for r in reader] == [(0, 600), (780, 60)]
    assert "in 1 job: is another run of a requeued job" in reader.tally.to_sentences()


def test_tasks_with_id_of_array_are_jobs(read):
    """Their index was cut off: they begin together, and end apart or are on other nodes."""
    lines = [f"{timed('500', end=f'00:1{at % 9 + 1}:00', elapsed='')}|n{at // 9}" for at in range(600)]
    later = f"{timed('500', start='00:30:00', end='00:40:00')}|n1"
    reader = read(*lines, lines[3], later, header=f"{TIMES}|NodeList")
    ids = [record.id for record in reader]
    assert (len(ids), len(set(ids)), ids[:3], ids[-1]) == (601, 601, [500, -5005000001, -5005000002], 500 + RUN_OFFSET)
    assert dict(reader.tally.dropped) == {REPEATED: 1}
    assert reader.tally.taken[DUPLICATE_NUMBER_REASON] == 599


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


# ------------------------------------------------------------------------------------------ zones and clocks

FALL = "2026-10-25T"


def over_the_change(start, end, elapsed):
    return f"7|{FALL}01:00:00|{FALL}01:00:00|{FALL}{start}|{FALL}{end}|{elapsed}|COMPLETED|05:00:00|1|8"


REPEATED_HOUR = "in 1 job: a time is in the hour that is repeated at a clock change"


@pytest.mark.parametrize(
    ("line", "zone", "run_s", "note"),
    [
        # 02:30 to 03:00 on the day on which 03:00 became 02:00: half an hour, or one and a half
        (over_the_change("02:30:00", "03:00:00", "00:30:00"), "Europe/Berlin", 1800,
         f"{REPEATED_HOUR}, resolved by Elapsed and the order of times"),
        (over_the_change("02:30:00", "03:00:00", "01:30:00"), "Europe/Berlin", 5400,
         f"{REPEATED_HOUR}, resolved by Elapsed and the order of times"),
        (over_the_change("02:30:00", "03:00:00", ""), "Europe/Berlin", 5400,
         f"{REPEATED_HOUR}, read as the first of the two"),
        # 02:50 to 02:10: run backwards, unless the clock was put back meanwhile
        (over_the_change("02:50:00", "02:10:00", "00:20:00"), "", 1200, "the clock changed, so set --zone"),
        # Elapsed does not count suspended time, so it may be off by anything but the hour of a clock
        (timed(end="02:11:00", elapsed="00:01:00"), "", 7800, ""),
        (timed(end="02:11:00", elapsed="00:10:00"), "", 7800, ""),
    ],
)  # fmt: skip
def test_elapsed_resolves_clock_changes(read, line, zone, run_s, note):
    reader = read(line, header=TIMES, zone=zone)
    assert [record.run_s for record in reader] == [run_s]
    assert note in "".join(reader.tally.to_sentences())


def test_rejects_time_skipped_by_clock(read):
    line = timed().replace(DAY, "2026-03-29T").replace("T00:01:00", "T02:30:00")
    with pytest.raises(InvalidTrace, match=r"Start: 2026-03-29T02:30:00: does not exist in Europe/Berlin"):
        list(read(line, header=TIMES, zone="Europe/Berlin"))


def test_times_use_given_zone_unless_they_have_offsets(read_one):
    assert read_one(timed(), header=TIMES, zone="Europe/Berlin").submit_s == MIDNIGHT_S - 3600
    line = timed().replace(f"{DAY}00:01:00", str(MIDNIGHT_S + 60)).replace(f"{DAY}00:11:00", f"{DAY}01:11:00+01:00")
    assert read_one(line, header=TIMES, zone="Asia/Tokyo").start_s == MIDNIGHT_S + 60


@pytest.mark.parametrize(
    ("option", "message"),
    [
        *(({"zone": zone}, "--zone") for zone in ("Europe/Nowhere", "../etc/passwd", "/etc/passwd", "\0", "Europe")),
        ({"arrival": "soon"}, "--arrival=soon: must be eligible or submit"),
    ],
)
def test_rejects_unknown_zone_and_arrival(option, message):
    with pytest.raises(InvalidValue, match=message):
        TraceDialect(**option)


# ------------------------------------------------------------------------------------------ amounts


@pytest.mark.parametrize(
    ("amount", "mib"),
    [
        ("1024M", 1024), ("1024", 1), ("0.5G", 512), ("3K", 1), ("1025K", 2), ("2T", 2 * 1024**2), ("1P", 1024**3),
        ("1.M", 1), (f"{MAX_AMOUNT}M", MAX_AMOUNT), ("0", None),
    ],
)  # fmt: skip
def test_rounds_memory_up_to_mib_for_any_unit(read_one, amount, mib):
    """No memory is not an amount of nought: the job does not ask for any."""
    assert dict(read_one(row(tres=f"mem={amount}")).ask.each).get("memory_mib") == mib


@pytest.mark.parametrize(
    ("facts", "units", "each"),
    [
        ({"nodes": "3", "cpus": "10", "tres": "mem=1000M,gres/gpu=4"}, 3,
         {"cores": 4, "memory_mib": 334, "gpus": 2}),
        ({"tres": "cpu=8,gres/gpu:a100=2,gres/gpu:v100=1"}, 1, {"cores": 8, "gpus": 3}),
        ({"tres": "gres/gpu=2,gres/gpu:a100=2"}, 1, {"cores": 8, "gpus": 2}),
        ({"nodes": "1K", "cpus": "2K"}, 1024, {"cores": 2}),
        ({"nodes": "2.0", "cpus": "16.0"}, 2, {"cores": 8}),
        # the allocation precedes the columns
        ({}, 1, {"cores": 8}),
        ({"tres": "node=2,cpu=4"}, 2, {"cores": 2}),
        ({"nodes": "2", "tres": "cpu=4"}, 2, {"cores": 2}),
        ({"cpus": "1"}, 1, {"cores": 1}),
    ],
)  # fmt: skip
def test_request_is_share_of_each_node_rounded_up(read_one, facts, units, each):
    expected = UnitsRequest(units, tuple(each.items()), distinct=units > 1, partition="main")
    assert read_one(row(**facts)).ask == expected


@pytest.mark.parametrize(
    ("allocated", "requested", "each"),
    [
        ({"tres": "cpu=2"}, "cpu=1,mem=7M,gres/gpu=1", {"cores": 2, "memory_mib": 7, "gpus": 1}),
        # `--exclusive` without GPUs on three nodes, of which one has two GPUs: no unit needs a GPU
        *(
            ({"nodes": "3", "cpus": "48", "tres": "cpu=48,gres/gpu=2,node=3"}, requested, {"cores": 16, **gpus})
            for requested, gpus in {
                "cpu=3,node=3": {}, "cpu=3,gres/gpu=3": {"gpus": 1}, "cpu=48": {"gpus": 1}, "gres/gpu=2": {"gpus": 1},
                "": {"gpus": 1},
            }.items()
        ),
    ],
)  # fmt: skip
def test_request_replaces_missing_allocation(read_one, allocated, requested, each):
    assert dict(read_one(f"{row(**allocated)}|{requested}", header=f"{NAMED}|ReqTRES").ask.each) == each


def test_missing_node_count_is_1_and_equal_jobs_share_request(read):
    reader = read(row(nodes="Unknown"), row("8", nodes=""), row("9", nodes="Unknown", tres="energy=9"))
    first, second, third = (record.ask for record in reader)
    assert first is second is third
    assert first.units == 1
    assert reader.tally.to_sentences() == ["in 3 jobs: the number of nodes is missing: read as 1"]
