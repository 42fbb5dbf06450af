"""Test hostile text in users' jobs: each job is read with its own values, or is reported as unreadable.

A job's record is compared with the record read without hostile text.

- No value of a job comes from another job or is invented.
- The jobs of users without hostile text are read in full.
- Owners can forge three settings of their own job (`scontrol_job_parsing`). This only makes the job unmanaged.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.transport.cli.cli_reader import SlurmCliReader
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings
from tests.unit.bridge.adapters.slurm.transport.cli.standin import RELEASES, Job, Programs

FORGEABLE = {"special_requests"}
CHECKED = (
    "state", "state_reason", "priority", "admin_comment", "requeue_count", "array_id", "array_task_id",
    "array_tasks_waiting", "start_time", "partition", "qos",
)  # fmt: skip
"""Fields that are checked before a command."""
FRAGMENTS = (
    "x", " JobState=RUNNING UserId=root(0)", "\n", "\n\n", "\n   ", "JobId={n} ", "JobName=a",
    "ArrayJobId=3 ArrayTaskId=7 ", "UserId=root(0) GroupId=root(0) MCS_label=N/A",
    "MinCPUsNode=64 MinMemoryNode=1M MinTmpDiskNode=0", "ReqTRES=cpu=1,gres/gpu=99",
    "NumNodes=9-9 NumCPUs=9 NumTasks=9",
    "SpreadJob=Yes", "NtasksPerTRES=4", "SegmentSize=2", "~", ",", ":", "|", "JobID", "\\xff", "\u2028", "\r\n",
    "\x1b[2J", "scontrol: ", "scontrol: show job {n}\n", "(null)", "N/A", "AdminComment=bridge:wait",
    "Nodes=n9 CPU_IDs=0-63 Mem=1 GRES=", "c" * 300,
)  # fmt: skip

texts = st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 9)), max_size=8).map(
    lambda parts: "".join(part.replace("{n}", str(n)) for part, n in parts)
)
whole_forgeries = st.builds(
    lambda n, name: "x\n\n" + Job(n, name, columns={"State": "RUNNING"}).shown("26.05.5"), st.integers(1, 9), texts
)
hostile = st.one_of(texts, whole_forgeries)


@st.composite
def sites(draw: st.DrawFn) -> tuple[list[Job], set[int]]:
    """Draw jobs, some in one array, and return them with the numbers of the jobs whose owner is hostile."""
    jobs, odd = [], set()
    for number in range(1, draw(st.integers(2, 7)) + 1):
        job = Job(
            number,
            lines={"tasks": str(number), "memory": f"CPU={number}M", "nodes": f"1-{number}"},
            columns={"PriorityLong": str(number), "Reason": f"R{number}", "admin_comment": f"a{number}"},
        )
        if number == 1 and draw(st.booleans()):
            job = replace(job, array=1, tasks="4-9%2")
        elif jobs and jobs[0].tasks and draw(st.booleans()):
            job = replace(job, array=1, task=number)
        if draw(st.booleans()):
            odd.add(number)
            job = replace(job, comment=draw(hostile) or "c", submit=draw(hostile))
            if job.array is None:
                job = replace(job, name=draw(hostile) or "n")
        jobs.append(job)
    array = {job.number for job in jobs if job.array is not None}
    return jobs, odd | array if odd & array else odd  # an array has one owner


def harmless(job: Job) -> Job:
    return replace(job, comment="c", submit="sbatch", name="wrap" if job.array is not None else "n")


def read(jobs: list[Job], release: str) -> dict[int, SlurmJob]:
    return {record.id: record for record in SlurmCliReader(programs=Programs(jobs, release)).read().jobs}


@scaled_example_settings(150)
@given(sites(), st.sampled_from(RELEASES))
def test_user_text_never_changes_another_record(site: tuple[list[Job], set[int]], release: str) -> None:
    jobs, odd = site
    found, true = read(jobs, release), read([harmless(job) for job in jobs], release)
    assert found.keys() == true.keys()
    for job in jobs:
        record = found[job.number]
        texts = {
            name: "" if text == "(null)" else text for name, text in (("name", job.name), ("comment", job.comment))
        }
        expected = true[job.number]._replace(**texts)._asdict()
        if job.number not in odd:
            assert not record.unreadable
        for field, value in record._asdict().items():
            if field == "unreadable" or (job.number in odd and field in FORGEABLE):
                continue
            default = SlurmJob._field_defaults.get(field)
            assert value == expected[field] or (field in record.unreadable and value == default), (job.number, field)


@scaled_example_settings(80)
@given(sites(), st.sampled_from(RELEASES))
def test_user_text_never_changes_targeted_query(site: tuple[list[Job], set[int]], release: str) -> None:
    jobs, odd = site
    found = {record.id: record for record in SlurmCliReader(programs=Programs(jobs, release)).read_jobs(None)}
    true = {
        r.id: r for r in SlurmCliReader(programs=Programs([harmless(job) for job in jobs], release)).read_jobs(None)
    }
    for job in jobs:
        if job.number not in found:
            assert job.number in odd
            continue
        for field in CHECKED:
            assert getattr(found[job.number], field) == getattr(true[job.number], field), (job.number, field)
