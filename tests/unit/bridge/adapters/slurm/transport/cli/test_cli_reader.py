"""Reading from a stand-in for Slurm's programs, in the output format of each release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.transport import CONFIG_INTERVAL_S
from cpsched_bridge.adapters.slurm.transport.cli import cli_reader, job_list_parsing, scontrol_job_parsing
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_bridge.adapters.slurm.transport.cli.job_records import CachingJobParser
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable
from tests.unit.bridge.adapters.slurm.transport.cli.standin import (
    NODE,
    PARTITION,
    RELEASES,
    Answers,
    Job,
    Programs,
)

ARRAY = (
    Job(7, array=7, tasks="0-2,5%3", columns={"Reason": "JobHeldUser"}),
    Job(8, array=7, task=3, columns={"Reason": "JobHeldAdmin", "PriorityLong": "9"}),
)
each_release = pytest.mark.parametrize("release", RELEASES)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@each_release
def test_distinguishes_tasks_that_squeue_merges(release: str) -> None:
    looking = SlurmCliReader(programs=Programs([Job(5), *ARRAY], release))
    for jobs in (looking.read().jobs[1:], looking.read_jobs([7])):
        assert [
            (job.id, job.array_id, job.array_task_id, job.array_tasks_waiting, job.array_tasks_parallel,
             job.state_reason, job.priority)
            for job in jobs
        ] == [(7, 7, 0, "0-2,5", 3, "JobHeldUser", 0), (8, 7, 3, "", 0, "JobHeldAdmin", 9)]  # fmt: skip
    assert [[job.id for job in looking.read_jobs(numbers)] for numbers in (None, [])] == [[5, 7, 8], []]


def test_vanished_hidden_task_leaves_others_unchanged() -> None:
    broken: dict[str, str | BackendError] = {"squeue --local --all --states=all --noheader --noconvert --jobs": ""}
    (common,) = SlurmCliReader(programs=Programs(ARRAY, broken=broken)).read().jobs
    assert (common.array_tasks_waiting, common.state_reason) == ("0-2,5", "JobHeldUser")


def test_targeted_query_omits_vanished_job() -> None:
    programs = Programs([Job(5)])
    programs.broken["squeue --local"] = BackendUnavailable("squeue: slurm_load_jobs error: Invalid job id specified")
    assert SlurmCliReader(programs=programs).read_jobs([6]) == []
    with pytest.raises(BackendUnavailable):
        SlurmCliReader(programs=programs).read_jobs([6, 7])


EXTRA_NODE = {"columns": {"CPUsPerTask": "3", "NumNodes": "2"}, "lines": {"tasks": "2", "nodes": "2"}}
FORGED_LINES = "x\n   UserId=root(0)\n   Priority=7 Nice=0\n   MinCPUsNode=9 MinMemoryNode=1M MinTmpDiskNode=0"


@pytest.mark.parametrize(
    ("release", "facts", "columns", "expected"),
    [
        # Releases before 24.05 add a node.
        ("22.05.8", EXTRA_NODE, {}, {"num_nodes": 1}),
        ("22.05.8", EXTRA_NODE, {"NumNodes": "3"}, {"num_nodes": 3}),
        ("22.05.8", EXTRA_NODE, {"CPUsPerTask": "1"}, {"num_nodes": 2}),
        ("22.05.8", EXTRA_NODE, {"NTPerNode": "1"}, {"num_nodes": 2}),
        ("22.05.8", EXTRA_NODE, {"State": "RUNNING"}, {"num_nodes": 2}),
        ("26.05.5", EXTRA_NODE, {}, {"num_nodes": 2}),
        # Sharing is reported in the terms of releases before 26.05.
        ("26.05.5", {}, {"OverSubscribe": "NO", "Exclusive": "NO"}, {"resource_sharing": "OK"}),
        ("26.05.5", {}, {"OverSubscribe": "YES", "Exclusive": "NO"}, {"resource_sharing": "YES"}),
        ("26.05.5", {}, {"OverSubscribe": "OK", "Exclusive": "NO"}, {"resource_sharing": "OK"}),
        ("26.05.5", {}, {"OverSubscribe": "NO", "Exclusive": "NODE"}, {"resource_sharing": "NO"}),
        ("26.05.5", {}, {"OverSubscribe": "NO", "Exclusive": "USER"}, {"resource_sharing": "USER"}),
        # Users' texts may look like settings.
        ("26.05.5", {"comment": "SpreadJob=Yes NtasksPerTRES=2 SegmentSize=2"}, {},
         {"special_requests": frozenset(), "segment_size": 0}),
        ("26.05.5", {"name": FORGED_LINES}, {},
         {"name": FORGED_LINES, "unreadable": (), "memory_per_cpu": 1000, "memory_per_node": 0}),
    ],
)  # fmt: skip
def test_translates_job_of_release(
    release: str, facts: dict[str, Any], columns: dict[str, str], expected: dict[str, object]
) -> None:
    job = Job(5, **facts | {"columns": facts.get("columns", {}) | columns})
    (found,) = SlurmCliReader(programs=Programs([job], release)).read().jobs
    assert {name: getattr(found, name) for name in expected} == expected


FORGED = "x\n\n" + Job(6, "other", columns={"State": "RUNNING"}).shown("26.05.5")


FLOOD = "".join(Job(number, array=7, task=1).shown("26.05.5") for number in range(100, 4000))


@pytest.mark.parametrize(
    ("jobs", "expected", "queries"),
    [
        # Forged records harm no other job,
        ([Job(5, submit=FORGED), Job(6), Job(7, submit=FORGED + Job(9).shown("26.05.5"))],
         [(5, "wrap", 1, False), (6, "wrap", 1, False), (7, "wrap", 1, False)], (2, 0)),
        # forged tasks hide no task and cost one query,
        ([Job(5, submit=f"x\n\n{FLOOD}"), *ARRAY],
         [(5, "wrap", 1, False), (7, "wrap", 1, False), (8, "wrap", 1, False)], (2, 1)),
        # a job that forges its own record is the only unreadable one,
        ([Job(5, submit="x\n\n" + Job(5).shown("26.05.5") + FORGED), Job(6)],
         [(5, "wrap", 0, True), (6, "wrap", 1, False)], (4, 0)),
        # and a record's prefix without an id is part of the name.
        ([Job(5, name="x\nJobId=a b\nJobId=12345678901 c"), Job(6)],
         [(5, "x\nJobId=a b\nJobId=12345678901 c", 1, False), (6, "wrap", 1, False)], (1, 0)),
    ],
)  # fmt: skip
def test_forged_records_harm_at_most_their_own_job(
    jobs: list[Job], expected: list[tuple[object, ...]], queries: tuple[int, int]
) -> None:
    programs = Programs(jobs)
    found = SlurmCliReader(programs=programs).read().jobs
    assert [(job.id, job.name, job.ntasks, "requested_tres" in job.unreadable) for job in found] == expected
    assert {job.state for job in found} == {"PENDING"}
    assert (programs.counted("scontrol", "--details"), programs.counted("squeue", "--jobs")) == queries


def test_leaves_job_renamed_during_reading() -> None:
    programs = Programs([Job(5)])
    for name in ("new", "warp"):
        programs.broken["scontrol --details show job"] = Job(5, name=name).shown("26.05.5")
        assert "ntasks" in SlurmCliReader(programs=programs).read().jobs[0].unreadable


def test_duplicate_line_makes_job_unreadable() -> None:
    job = Job(5, lines={"required": "(null)\n   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A"})
    (found,) = SlurmCliReader(programs=Programs([job])).read().jobs
    assert ("ntasks" in found.unreadable, found.time_limit) == (True, 60)


def test_keeps_details_while_squeue_row_is_unchanged() -> None:
    clock = Clock()
    programs, looking = after_a_reading([Job(5, submit=FORGED), Job(6)], clock)
    programs.jobs = [programs.jobs[0], Job(6, lines={"tasks": "4"}, columns={"PriorityLong": "3"})]
    assert looking.read().jobs[1].ntasks == 4
    programs.asked.clear()
    clock.now_s = cli_reader.DETAILS_INTERVAL_S
    looking.read()
    assert not programs.counted("scontrol", "--details") - programs.counted("job")


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("scontrol --details show job", Job(5).shown("26.05.5")[:-1]),
        ("scontrol --details show job", ""),
        ("scontrol --details show job", "No jobs in the system\n"),
        ("scontrol --details show job", "garbage\n\n"),
        ("squeue --local", BackendUnavailable("no controller")),
        ("scontrol --all show nodes", BackendUnavailable("no controller")),
        ("scontrol show config", BackendUnavailable("no controller")),
        ("scontrol --all show nodes", "NodeName=n1 Arch=x86_64\n   CPUAlloc=0"),
        ("scontrol --all show nodes", NODE.format(name="n1") + NODE.format(name="n2")[:-1]),
        ("scontrol --all show nodes", "something else\n" + NODE.format(name="n1")),
        ("scontrol --all show partitions", PARTITION[:-2]),
    ],
)
def test_failed_or_partial_answer_fails_reading(command: str, printed: str | BackendError) -> None:
    with pytest.raises(BackendUnavailable):
        SlurmCliReader(programs=Programs([Job(5), Job(6)], broken={command: printed})).read()


def test_unchanged_jobs_need_few_queries() -> None:
    clock = Clock()
    programs, looking = after_a_reading([Job(5)], clock)
    for clock.now_s in (1.0, 2.0):
        programs.asked.clear()
        looking.read()
        assert [command[0] for command in programs.asked] == ["squeue", "scontrol", "scontrol"]
    clock.now_s = CONFIG_INTERVAL_S
    programs.plugins = "(null)"
    assert not looking.read().guarded
    programs.asked.clear()
    programs.jobs = [Job(5), Job(6)]
    looking.read()
    assert programs.counted("job") == 1


def after_a_reading(jobs: Sequence[Job], clock: Clock | None = None) -> tuple[Programs, SlurmCliReader]:
    """Programs that show these jobs, and a reader that has read them; questions are counted from now on."""
    programs = Programs(jobs)
    looking = SlurmCliReader(clock=clock or Clock(), programs=programs)
    looking.read()
    programs.asked.clear()
    return programs, looking


MANY = [Job(number) for number in range(1000, 1000 + 3 * cli_reader.CHANGED_JOBS_DIVISOR)]


def details_asked(programs: Programs) -> tuple[int, int]:
    """How often scontrol was asked for all jobs, and for some of them."""
    every = programs.counted("--details", "job")
    return every, programs.counted("scontrol", "--details") - every


def test_queries_few_changed_jobs_by_id() -> None:
    programs, looking = after_a_reading([*MANY, Job(5), Job(6)])
    changed = Job(5, columns={"TimeLimit": "2:00:00"}, lines={"tasks": "3", "limit": "02:00:00"})
    programs.jobs = [*MANY, changed, Job(6, lines={"tasks": "4"}), Job(7, lines={"tasks": "2"})]
    found = [(job.id, job.ntasks, job.time_limit) for job in looking.read().jobs if job.id < 1000]
    assert found == [(5, 3, 120), (6, 1, 60), (7, 2, 60)], "squeue shows nothing new of job 6"
    assert details_asked(programs) == (0, 1)
    looking.read()
    assert details_asked(programs) == (0, 1)


def test_changes_made_by_slurm_need_no_query() -> None:
    programs, looking = after_a_reading([*MANY, Job(5)])
    programs.jobs = [replace(job, columns={"PriorityLong": "77", "Reason": "Priority"}) for job in programs.jobs]
    assert {job.priority for job in looking.read().jobs} == {77}
    assert details_asked(programs) == (0, 0)


def test_queries_many_changed_jobs_together() -> None:
    programs, looking = after_a_reading([*MANY, Job(5)])
    programs.jobs = [*MANY, *(Job(number, lines={"tasks": "2"}) for number in range(1, 6))]
    assert [job.ntasks for job in looking.read().jobs if job.id < 6] == [2] * 5
    assert details_asked(programs) == (1, 0)


def test_vanished_changed_job_makes_query_for_all() -> None:
    programs, looking = after_a_reading([*MANY])
    programs.jobs, programs.silent = [*MANY, Job(5, columns={"State": "COMPLETED"})], {5}
    assert [(job.state, job.ntasks) for job in looking.read().jobs if job.id == 5] == [("COMPLETED", 0)]
    assert details_asked(programs) == (1, 1)


def test_missing_changed_job_fails_reading_and_then_queries_all() -> None:
    programs, looking = after_a_reading([*MANY])
    programs.jobs, programs.silent = [*MANY, Job(5)], {5, 1000}
    for counted in (1, 2):
        with pytest.raises(BackendUnavailable, match=r"missing .* jobs listed by squeue"):
            looking.read()
        assert programs.counted("--details", "job") == counted
    programs.silent = set()
    assert len(looking.read().jobs) == len(MANY) + 1


def test_changed_job_cannot_forge_other_records() -> None:
    programs, looking = after_a_reading([*MANY, Job(6)])
    running, nine = {"State": "RUNNING"}, {"tasks": "9"}
    forged = "".join(Job(number, columns=running, lines=nine).shown("26.05.5") for number in (6, 7, 1000))
    programs.jobs = [*MANY, Job(6), Job(7, lines={"tasks": "2"}), Job(8, submit=f"x\n\n{forged}")]
    found = [(job.id, job.ntasks, job.unreadable) for job in looking.read().jobs if job.id <= 1000]
    assert found == [(1000, 1, ()), (6, 1, ()), (7, 2, ()), (8, 1, ())]
    assert details_asked(programs)[0] == 0


@pytest.mark.parametrize(
    ("took_s", "period_s"),
    [(0.1, cli_reader.DETAILS_INTERVAL_S), (2.0, 40.0), (9.0, cli_reader.MAX_DETAILS_INTERVAL_S)],
)
def test_queries_slow_details_less_often(took_s: float, period_s: float) -> None:
    clock, programs = Clock(), Programs([Job(5)])

    def slow(
        commands: dict[str, list[str]], deadline_s: float, typed: dict[str, str] | None = None, most_s: float = 0.0
    ) -> Answers:
        clock.now_s += took_s * ("details" in commands)
        return programs(commands, deadline_s, typed)

    looking = SlurmCliReader(clock=clock, programs=slow)
    looking.read()
    for clock.now_s, expected in ((period_s - 0.1, 1), (period_s, 2)):
        looking.read()
        assert details_asked(programs) == (expected, 0)


def test_queries_some_jobs_after_late_query_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on nodes first, then the oldest that were never shown; the others wait for a later reading."""
    monkeypatch.setattr(cli_reader, "MAX_SINGLE_JOB_QUERIES", 2)
    monkeypatch.setattr(cli_reader, "MAX_SINGLE_JOB_QUERIES_WHILE_SLOW", 3)
    clock = Clock()
    programs, looking = after_a_reading([Job(5)], clock)
    running = {"State": "RUNNING", "NodeList": "n1"}
    programs.jobs = [Job(5), *(Job(number) for number in range(6, 9)), Job(9, columns=running)]
    programs.broken["scontrol --details show job"] = BackendTimeout("scontrol --details show job: no answer")
    with pytest.raises(BackendTimeout):
        looking.read()
    numbers = [[job.id for job in looking.read().jobs] for _ in range(2)]
    assert (numbers, details_asked(programs)[0]) == ([[5, 6, 7, 9], [5, 6, 7, 8, 9]], 1)
    del programs.broken["scontrol --details show job"]
    clock.now_s += cli_reader.MAX_DETAILS_INTERVAL_S
    assert ([job.id for job in looking.read().jobs], details_asked(programs)[0]) == ([5, 6, 7, 8, 9], 2)


def test_timeout_follows_recent_pace() -> None:
    """Each program of a reading has one of its own."""
    programs = Programs([Job(5)])
    given: list[tuple[float, float]] = []

    def noting(
        commands: dict[str, list[str]], deadline_s: float, typed: dict[str, str] | None = None, most_s: float = 0.0
    ) -> Answers:
        given.append((deadline_s, most_s))
        return programs(commands, deadline_s, typed)

    looking = SlurmCliReader(10.0, programs=noting)
    programs.broken["squeue --local"] = BackendTimeout("squeue: no answer")
    with pytest.raises(BackendTimeout):
        looking.read()
    del programs.broken["squeue --local"]
    looking.read()
    looking.read()
    assert set(given[:2]) == {(10.0, 60.0)}
    assert set(given[2:5]) == {(20.0, 120.0)}
    assert set(given[5:]) == {(10.0, 60.0)}


def test_elapsed_time_changes_no_record() -> None:
    clock = Clock()
    programs, looking = after_a_reading([Job(5), Job(6)], clock)
    before = looking.read().jobs
    clock.now_s = cli_reader.DETAILS_INTERVAL_S
    shown = "".join(Job(number).shown("26.05.5") for number in (5, 6))
    later = shown.replace("LastSchedEval=1795379580", "LastSchedEval=1795379999").replace("NumTasks=1", "NumTasks=2", 1)
    programs.broken["scontrol --details show job"] = later.replace("RunTime=00:00:00", "RunTime=00:00:09")
    first, second = looking.read().jobs
    assert (first.ntasks, second.ntasks, second is before[1]) == (2, 1, True)


def test_always_queries_pending_array() -> None:
    programs, looking = after_a_reading([*ARRAY])
    programs.jobs = [Job(7, array=7, tasks="0-1,5%3"), ARRAY[1], Job(9, array=7, task=2)]
    found = [(job.id, job.array_tasks_waiting) for job in looking.read().jobs]
    assert found == [(7, "0-1,5"), (8, ""), (9, "")]


def test_queries_hidden_tasks_on_change_and_periodically() -> None:
    clock, programs = Clock(), Programs(ARRAY)
    looking = SlurmCliReader(clock=clock, programs=programs)
    before = looking.read().jobs
    for clock.now_s in (1.0, 2.0):
        programs.asked.clear()
        assert looking.read().jobs == before
        assert [command[0] for command in programs.asked] == ["squeue", "scontrol", "scontrol", "scontrol"]
    other = Job(8, array=7, task=3, columns={"Reason": "JobHeldUser", "PriorityLong": "0"})
    programs.jobs = [ARRAY[0], other]
    common, task = looking.read().jobs
    assert (common, task.state_reason, task.priority) == (before[0], "JobHeldUser", 0)
    programs.jobs = [ARRAY[0], Job(8, array=7, task=3, columns={"Reason": "JobHeldUser", "PriorityLong": "5"})]
    clock.now_s = 2.0 + cli_reader.DETAILS_INTERVAL_S
    assert looking.read().jobs[1].priority == 5
    programs.jobs = [Job(7, array=7, tasks="0-2,5%3", columns={"Reason": "JobHeldUser"})]
    assert [job.id for job in looking.read().jobs] == [7]


SACCT = (
    "12", "10_2", "a\nb", "0", "lab", "main", "1795381000", "1795381100", "1795381200", "60", "CANCELLED by 2001",
    "2", "8", "n[1-2]", "billing=8,cpu=8,gres/gpu=2,mem=4000M,node=2",
    "", "a100&ib",
)  # fmt: skip


class Past:
    """sacct, slow to answer."""

    def __init__(self, waits: int, *rows: tuple[str, ...]) -> None:
        self.waits, self.rows = waits, rows

    def __call__(self, commands: dict[str, list[str]], deadline_s: float) -> Answers:
        end = next(w for w in commands["sacct"] if w.startswith("--delimiter=")).partition("=")[2]
        return Answers({"sacct": "".join("".join(v + end for v in row) + "\n" for row in self.rows)}, waits=self.waits)


def test_reports_ended_jobs_once_database_answers() -> None:
    """A job that ended just at the second asked for was in the answer before."""
    since_s = 1795380000
    rows = (
        ("11", "11", *SACCT[2:8], str(since_s), *SACCT[9:]),
        ("13", "10_0", *SACCT[2:8], str(since_s + 1), "UNLIMITED", "FAILED", "None", "None", "", "", "", ""),
        ("14", "10_[1-3]", *SACCT[2:8], str(since_s + 1), "", *SACCT[10:]),
        ("15", "15", "x", "unknown", *SACCT[4:]),
        ("16", "16", *SACCT[2:8], "Unknown", *SACCT[9:]),
    )
    looking = SlurmCliReader(programs=Past(1, SACCT, *rows))
    with pytest.raises(BackendTimeout):
        looking.read_accounting(since_s)
    told = SlurmJob(
        id=12, state="CANCELLED", name="a\nb", user_id=0, user_name="root", account="lab", partition="main",
        submit_time=1795381000, start_time=1795381100, end_time=1795381200, time_limit=60, num_nodes=2, cpus=8,
        array_id=10, array_task_id=2, allocated_nodes="n[1-2]", constraints=("a100&ib",),
        allocated_tres={"billing": 8, "cpu": 8, "gres/gpu": 2, "mem": 4000, "node": 2},
    )  # fmt: skip
    just_later = told._replace(
        id=13, end_time=since_s + 1, time_limit="UNLIMITED", state="FAILED", num_nodes=1, cpus=1, array_task_id=0,
        allocated_nodes="", allocated_tres={}, constraints=(),
    )  # fmt: skip
    in_partitions_limit = told._replace(id=14, end_time=since_s + 1, time_limit=None, array_task_id=0)
    assert list(looking.read_accounting(since_s)) == [told, just_later, in_partitions_limit]


def test_sacct_gets_valid_start_time() -> None:
    starts = {since_s: job_list_parsing.build_sacct_command(since_s, "~w")[-3] for since_s in (5, 1795380000)}
    assert starts == {5: "--starttime=uts1000000", 1795380000: "--starttime=uts1795380000"}


@pytest.mark.parametrize(("answers", "waits"), [(True, [4.0, 0.0]), (False, [0.0, 0.0])])
def test_only_first_history_waits_if_accounting_answers(
    answers: bool, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_reader, "query_admin_level", lambda user: {"accounting_answers": answers})
    waited: list[float] = []
    monkeypatch.setattr(Answers, "wait_for_outputs", lambda self, wait_s: waited.append(wait_s))
    past, others = Past(0, SACCT), Programs()
    looking = SlurmCliReader(
        deadline_s=4.0, programs=lambda asked, *rest: (past if "sacct" in asked else others)(asked, *rest)
    )
    looking.gather_doctor_facts()
    for _ in range(2):
        with pytest.raises(BackendTimeout):
            looking.read_accounting(0)
    assert waited == waits


@pytest.mark.parametrize("rows", [(SACCT[:-1],), ((*SACCT, "x"), SACCT[:-1]), (("garbage",),)])
def test_rejects_incomplete_history(rows: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(BackendUnavailable, match="sacct"):
        SlurmCliReader(programs=Past(0, *rows)).read_accounting(0)


@pytest.mark.parametrize("instead", ["garbage", "{whole}x", "{cut}"])
def test_rejects_history_with_wrong_end_mark(instead: str) -> None:
    end = "~w"
    whole = "".join(value + end for value in SACCT) + "\n"
    with pytest.raises(BackendUnavailable, match="is truncated"):
        job_list_parsing.parse_ended_jobs(instead.format(whole=whole, cut=whole[:-1]), end, 0)


def test_forged_ids_of_vanished_jobs_cost_no_query() -> None:
    """An array that has ended is among the jobs: behind one, numbers that squeue does not show may hide."""
    ended = Job(7, array=7, tasks="0-2", columns={"State": "CANCELLED"})
    programs = Programs([*MANY, ended, Job(5, submit=FORGED), Job(6)])
    looking = SlurmCliReader(clock=Clock(), programs=programs)
    looking.read()
    programs.jobs = [*MANY, ended]
    for _ in range(2):
        programs.asked.clear()
        looking.read()
        assert (programs.counted("--jobs"), details_asked(programs)) == (0, (0, 0))


def test_reads_common_record_again_while_it_hides_tasks() -> None:
    """Its row and its record may be as before: what squeue shows of it is then no longer its own alone."""
    job = Job(7, array=7, tasks="0-2", columns={"Reason": "Resources"}, lines={"state": "PENDING"})
    columns = (*job_list_parsing.ALL_COLUMNS, *job_list_parsing.COLUMNS_SINCE_26_05)
    rows = {7: job_list_parsing.SqueueRow(*map(job.column, columns))}
    shown, _ = scontrol_job_parsing.split_job_records(replace(job, columns={"Reason": "JobHeldUser"}).shown("26.05.5"))
    jobs = CachingJobParser()
    reasons = [jobs.parse(rows, shown, hidden)[0].state_reason for hidden in (set(), {7}, set())]
    assert reasons == ["Resources", "JobHeldUser", "Resources"]
    assert CachingJobParser().parse(rows, {}, {7})[0].unreadable[:2] == ("array_tasks_parallel", "array_tasks_waiting")
