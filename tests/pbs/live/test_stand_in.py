"""Compare the stand-in's rejections and messages with those of a real server in the same state."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tests.pbs.live.harness import CLAIM, LEFT, POINTS, QUEUE, Pbs, run, until

pytest.importorskip("cpsched_bridge.adapters.pbs", reason="the PBS adapter is not there")

from tests.pbs import printing
from tests.pbs.commands import execute
from tests.pbs.server import Queue, Server, Vnode

NOBODYS = "999999.vm"


@dataclass
class Both:
    """A real server and the stand-in with the same events; jobs are named as in the stand-in."""

    pbs: Pbs
    stand_in: Server = field(default_factory=Server)
    _at: str = ".vm"
    """How the server's names of jobs end."""

    def __post_init__(self) -> None:
        self.stand_in.vnodes = {name: Vnode(name, has) for name, has in self.pbs.vnodes().items()}
        self.stand_in.queues = {QUEUE: Queue(QUEUE, started=False), LEFT: Queue(LEFT)}
        self.first, self.second, *_ = self.stand_in.vnodes
        self.all_of_it = self.stand_in.vnodes[self.first].has["ncpus"]

    def submit(self, select: str = "1:ncpus=1", place: str = "free", subjobs: int = 0) -> str:
        """A job, or an array; its name at the stand-in."""
        array = ["-J", f"1-{subjobs}"] if subjobs else []
        real = self.pbs.submit(select, 60, "-l", f"place={place}", *array)
        number, _, host = real.partition(".")
        self.stand_in.next_id = int(number.partition("[")[0])
        id = self.stand_in.submit(
            select, 60, queue=QUEUE, place=place, array=range(1, subjobs + 1) if subjobs else None
        )
        self._at = f".{host}"
        return id

    def answers(self, *argv: str) -> tuple[tuple[int, str], tuple[int, str]]:
        """Exit status and complaint, of the stand-in and of the server."""
        done = subprocess.run(self._told(argv), capture_output=True, text=True, timeout=60, check=False)
        words = self._ours(done.stderr.strip())
        status, _, complaint = execute(self.stand_in, argv)
        return (status, complaint.strip()), (done.returncode, words)

    def run(self, id: str, vnode: str = "", ncpus: int = 1) -> None:
        """Start a job in both."""
        assert self.answers("qrun", "-H", f"({vnode or self.first}:ncpus={ncpus})", id) == ((0, ""), (0, ""))
        self.stand_in.tick(2)
        real = self._told([id])[0]
        until(lambda: self.pbs.jobs()[real].get("substate") == 42, "the job's host has taken it on")

    def delete(self, id: str) -> None:
        """A job that runs is over."""
        real = self._told([id])[0]
        run("qdel", "-W", "force", real)
        until(lambda: real not in self.pbs.jobs(), "the job is over")
        self.stand_in.delete(id)

    def vnode(self, name: str) -> tuple[str, list[str]]:
        """The states of a vnode and the jobs that are shown on it, which both agree about."""
        real = self.pbs.vnode(name)
        found = json.loads(printing.vnodes(self.stand_in))["nodes"][name]
        jobs = [self._ours(job) for job in real.get("jobs", [])]
        assert (found["state"], found.get("jobs", [])) == (real["state"], jobs)
        return found["state"], jobs

    def offline(self, vnode: str) -> None:
        """A vnode is given no jobs."""
        self.pbs.manage(f"set node {vnode} state=offline")
        self.stand_in.vnodes[vnode].offline = True

    def _told(self, argv: Sequence[str]) -> list[str]:
        """A command in the server's names of jobs."""
        return [each.replace(".vm", self._at) if each[:1].isdigit() else each for each in argv]

    def _ours(self, words: str) -> str:
        """Words in the stand-in's names of jobs."""
        return words.replace(self._at, ".vm")


@pytest.fixture
def both(pbs: Pbs) -> Both:
    pbs.manage(f"set queue {QUEUE} started=False")
    return Both(pbs)


def agree(both: Both, *argv: str, refused: bool = True) -> None:
    """The command is refused by both, in the same words."""
    stand_in, server = both.answers(*argv)
    assert stand_in == server
    assert bool(server[0]) is refused


def test_start_of_unstartable_job_is_refused(both: Both) -> None:
    where = f"({both.first}:ncpus=1)"
    job, array, other = both.submit(), both.submit(subjobs=2), both.submit()
    both.run(job)
    agree(both, "qrun", "-H", where, job)
    agree(both, "qrun", "-H", where, array)
    agree(both, "qrun", "-H", where, NOBODYS)
    agree(both, "qrun", "-H", where, "job")
    agree(both, "qrun", "-H", "(nowhere:ncpus=1)", other)
    agree(both, "qrun", "-H", where, array.replace("[]", "[9]"))


def test_start_on_offline_vnode_is_accepted(both: Both) -> None:
    both.offline(both.second)
    agree(both, "qrun", "-H", f"({both.second}:ncpus=1)", both.submit(), refused=False)
    assert "offline" in both.stand_in.wrongs[0]


def test_start_on_exclusively_used_vnode_is_refused(both: Both) -> None:
    alone, job = both.submit(place="excl"), both.submit()
    both.run(alone)
    agree(both, "qrun", "-H", f"({both.first}:ncpus=1)", job)


def test_exclusive_job_gets_vnode_in_use(both: Both) -> None:
    job, alone = both.submit(), both.submit(place="excl")
    both.run(job)
    agree(both, "qrun", "-H", f"({both.first}:ncpus=1)", alone, refused=False)
    assert "beside others" in both.stand_in.wrongs[0]


def test_refused_multi_chunk_start_reserves_vnode(both: Both) -> None:
    """`pbsnodes` shows the vnode as the job's, and the job waits."""
    job, alone, other = both.submit(), both.submit("2:ncpus=1", "pack:excl"), both.submit()
    both.run(job)
    where = f"({both.first}:ncpus=1)+({both.first}:ncpus=1)"
    agree(both, "qrun", "-H", where, alone)
    both.delete(job)
    assert both.vnode(both.first) == ("job-exclusive", [alone])
    agree(both, "qrun", "-H", f"({both.first}:ncpus=1)", other)
    agree(both, "qrun", "-H", where, alone, refused=False)
    both.delete(alone)
    assert both.vnode(both.first) == ("free", [])


def test_move_of_unmovable_job_is_refused(both: Both) -> None:
    job, array, other = both.submit(), both.submit(subjobs=2), both.submit()
    agree(both, "qmove", "nowhere", other)
    agree(both, "qmove", LEFT, NOBODYS)
    both.run(job)
    agree(both, "qmove", LEFT, job)
    agree(both, "qmove", LEFT, array.replace("[]", "[2]"))
    both.run(array.replace("[]", "[2]"))
    agree(both, "qmove", LEFT, array)
    agree(both, "qmove", LEFT, other, refused=False)


def test_query_of_unknown_job_is_refused(both: Both) -> None:
    both.submit()
    agree(both, "qstat", "-f", "-F", "json", NOBODYS)


def test_qmgr_rejects_invalid_values(both: Both) -> None:
    agree(both, "qmgr", "-c", "set queue nowhere started = True")
    agree(both, "qmgr", "-c", f'set server resources_available.{CLAIM} = "a&b"')


def test_points_for_invalid_jobs_are_refused(both: Both) -> None:
    if POINTS not in run("qmgr", "-c", "list resource"):
        both.pbs.manage(f"create resource {POINTS} type=long,flag=r")
    job, array, other = both.submit(), both.submit(subjobs=2), both.submit()
    both.run(job)
    for each in (job, array.replace("[]", "[2]"), NOBODYS):
        agree(both, "qalter", "-l", f"{POINTS}=5", each)
    agree(both, "qalter", "-l", f"{POINTS}=5", other, array, refused=False)
