"""A simulated PBS server: jobs, queues, vnodes, PBS's own scheduler, and the accounting log.

It rejects exactly the requests that OpenPBS 23.06 rejects. `qrun` can start a held job, exceed a limit, or use a vnode
that is full or offline; such a start is recorded in `wrongs`.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

ID = re.compile(r"\d+(?:\[\d*\])?(?:\.[\w.-]+)?$", re.ASCII)
WAITS, RUNS = frozenset("QHW"), frozenset("RS")
T0 = 1_795_426_800
"""2026-11-23 09:40:00 UTC."""
ITERATION_S = 600
"""Interval of PBS's own scheduler."""
REFUSED_BY_MOM = -3
POINTS = "cpsched_boost"
REQUEUED = -11
DELETED = 271

Amounts = Counter[str]
Placed = tuple[tuple[str, Amounts], ...]
"""By chunk, the vnode and its used amounts."""


class Refused(Exception):
    """A command that PBS rejected: its exit status and message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass
class Job:
    """The actual state of a job, an array ("7[].vm") or a subjob. Times are in seconds since 1970."""

    id: str
    user: str
    queue: str
    select: str
    place: str
    walltime_s: int
    runs_s: int
    ctime: int
    name: str = "STDIN"
    account: str = ""
    indices: str = ""
    holds: set[str] = field(default_factory=set)
    begins_s: int = 0
    rerunable: bool = True
    started: bool = False
    """For an array: whether a subjob has begun."""
    state: str = "Q"
    substate: int = 10
    placed: Placed = ()
    start_s: int = 0
    run_count: int = 0
    exit_status: int | None = None
    points: int = 0
    """`Resource_List.cpsched_boost`, writable by managers only."""
    between_s: tuple[int, int] | None = None
    """Minimum and maximum walltime of a job that shrinks to fit; its starter sets the walltime."""
    points_of: str = ""
    """The last writer: the bridge or an administrator."""

    @property
    def chunks(self) -> list[Amounts]:
        """Return the chunks of its select; amounts of memory in KiB."""
        return list(chunks_of(self.select))

    @property
    def is_alone(self) -> bool:
        """Return whether it requests exclusive vnodes."""
        return bool({"excl", "exclhost"} & set(self.place.split(":")))


@dataclass
class Vnode:
    """A vnode. A job that wanted it exclusively, and had another chunk refused, is `left` until it has run there."""

    name: str
    has: Amounts
    offline: bool = False
    left: str = ""
    rack: str = ""
    """A non-consumable resource by which jobs may be grouped."""


@dataclass
class Queue:
    """An execution queue. `limits` are further attributes that qstat prints."""

    name: str
    started: bool = True
    limits: dict[str, object] = field(default_factory=dict)


def chunks_of(select: str) -> Iterator[Amounts]:
    """Parse `2:ncpus=3:mem=1gb+ncpus=1` by chunk."""
    for part in select.split("+"):
        words = part.split(":")
        times = int(words.pop(0)) if words[0].isdigit() else 1
        asked = dict(word.split("=", 1) for word in words)
        amounts = Counter({"ncpus": int(asked.get("ncpus", 1))})
        if "mem" in asked:
            amounts["mem"] = kib(asked["mem"])
        if "ngpus" in asked:
            amounts["ngpus"] = int(asked["ngpus"])
        yield from (amounts.copy() for _ in range(times))


def kib(size: str) -> int:
    """Convert `1gb` to KiB."""
    digits, unit = re.fullmatch(r"(\d+)([kmgt]?)b?", size.lower()).groups()  # type: ignore[union-attr]
    return int(digits) * {"": 1, "k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}[unit]


def placed_of(where: str) -> Placed:
    """Parse `(a:ncpus=2)+(b:ncpus=1:mem=10kb)`, as far as possible."""
    found = []
    for name, words in re.findall(r"\(?([\w\[\].-]+)((?::\w+=\w+)*)\)?", where):
        said = dict(word.split("=") for word in words.split(":") if word)
        found.append((name, Counter({what: kib(n) if what == "mem" else int(n) for what, n in said.items()})))
    return tuple(found)


def words_of(placed: Placed) -> str:
    """`exec_vnode`."""

    def chunk(name: str, used: Amounts) -> str:
        amounts = (f"{what}={n}{'kb' * (what == 'mem')}" for what, n in sorted(used.items(), reverse=True))
        return f"({':'.join([name, *amounts])})"

    return "+".join(chunk(name, used) for name, used in placed)


def hosts_of(placed: Placed) -> str:
    """Return `exec_host` for vnodes of one host."""
    return "+".join(f"vm/{at}" for at, _ in enumerate(placed))


@dataclass
class Server:
    """PBS's server, scheduler and vnodes. `tick` advances time."""

    now_s: int = T0
    vnodes: dict[str, Vnode] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    past: dict[str, Job] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    """`resources_available` of the server, which has the claim of a bridge."""
    log: list[str] = field(default_factory=list)
    """The accounting log."""
    wrongs: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Jobs that their hosts reject once."""
    down: bool = False
    schedules: bool = True
    """Whether PBS's own scheduler is on."""
    looks: bool = True
    """Whether an event triggers PBS's own scheduler; opening a queue does not."""
    formula: str = ""
    """`job_sort_formula`; the stand-in's scheduler supports only `cpsched_boost`."""
    next_id: int = 0
    moments: random.Random | None = None
    """Random source of PBS's own scheduler acting between commands; None: it acts as time passes."""
    about_to_start: list[tuple[str, Placed]] | None = None
    """The starts chosen by PBS's own scheduler from its reading; None: it is idle."""

    @classmethod
    def of(cls, vnodes: int = 3, ncpus: int = 4, queues: Iterable[str] = ("workq", "leftq")) -> Server:
        """Return a host with vnodes, the last of which has two GPUs."""
        server = cls()
        for at in range(vnodes):
            has = Counter({"ncpus": ncpus, "mem": 8 << 20, "ngpus": 2 * (at == vnodes - 1)})
            server.vnodes[f"vm[{at}]"] = Vnode(f"vm[{at}]", has, rack="a" if at < vnodes - 1 else "b")
        server.queues = {name: Queue(name) for name in queues}
        return server

    # ------------------------------------------------------------------------------------------ what users do

    def submit(
        self, select: str = "1:ncpus=1", runs_s: int = 10, user: str = "ada", queue: str = "workq", place: str = "free",
        walltime_s: int = 600, array: range | None = None, holds: str = "", begins_s: int = 0, rerunable: bool = True,
        account: str = "", between_s: tuple[int, int] | None = None,
    ) -> str:  # fmt: skip
        """Submit a job or an array; return its id."""
        number, self.next_id = self.next_id, self.next_id + 1
        names = [f"{number}.vm"] if array is None else [f"{number}[].vm", *(f"{number}[{at}].vm" for at in array)]
        for name in names:
            job = Job(name, user, queue, select, place, walltime_s, runs_s, self.now_s, account=account)
            job.begins_s, job.holds, job.rerunable = begins_s, set(holds), rerunable
            job.between_s, job.walltime_s = between_s, walltime_s if between_s is None else 0
            job.indices = f"{array[0]}-{array[-1]}" if array is not None and "[]" in name else ""
            self.jobs[name] = job
            self._settle(job)
        self._write("Q", self.jobs[names[0]])
        self.looks = True
        return names[0]

    def hold(self, id: str, kind: str = "u") -> None:
        """qhold."""
        self.jobs[id].holds.add(kind)
        self._settle(self.jobs[id])

    def release(self, id: str, kind: str = "u") -> None:
        """qrls."""
        self.jobs[id].holds.discard(kind)
        self.looks = True
        self._settle(self.jobs[id])

    def delete(self, id: str) -> None:
        """qdel."""
        job = self.jobs[id]
        self._note("D", id, "requestor=ada@vm")
        if job.placed:
            self._end(job, "E", DELETED)
        else:
            self._forget(job)

    def requeue(self, id: str) -> None:
        """qrerun."""
        job = self.jobs[id]
        if job.state not in RUNS:
            raise Refused(168, f"qrerun: Request invalid for state of job {id}")
        if not job.rerunable:
            raise Refused(190, f"qrerun: job is not rerunnable {id}")
        self._end(job, "R", REQUEUED)

    def _settle(self, job: Job) -> None:
        if job.state in WAITS:
            job.state = "H" if job.holds else "W" if job.begins_s > self.now_s else "Q"

    # ------------------------------------------------------------------------------------------ commands of managers

    def run(self, id: str, where: str) -> None:
        """`qrun -H where id`."""
        if not ID.match(id):
            raise Refused(1, f"qrun: illegally formed job identifier: {id}")
        job = self.jobs.get(id)
        if "[]" in id or (job is None and re.sub(r"\[\d+\]", "[]", id) in self.jobs):
            raise Refused(2, f"qrun: Invalid request {id}")
        if job is None:
            raise Refused(2, f"qrun: Unknown Job Id {id}")
        if job.state not in WAITS:
            raise Refused(2, f"qrun: Request invalid for state of job {id}")
        placed = placed_of(where)
        for name, _ in placed:
            if name not in self.vnodes:
                raise Refused(2, f"qrun: Unknown node  {where}")
        self._check_vnodes(job, placed)
        if job.holds or job.state == "W" or ((parent := self._parent(job)) is not None and parent.holds):
            self.wrongs.append(f"{id} is run although it is held, or waits for its time")
        if job.between_s is not None and not job.between_s[0] <= job.walltime_s <= job.between_s[1]:
            self.wrongs.append(f"{id} is run with a walltime of {job.walltime_s} s, not one of {job.between_s}")
        self._start(job, placed)

    def _check_vnodes(self, job: Job, placed: Placed) -> None:
        """Check by chunk whether another job has a vnode exclusively; a refusal undoes nothing."""
        taken: list[str] = []
        for name, _ in placed:
            vnode = self.vnodes[name]
            others = [each for each in self.on(name) if each is not job]
            if vnode.offline:
                self.wrongs.append(f"{job.id} is run onto {name}, which is offline")
            if job.is_alone and others:
                self.wrongs.append(f"{job.id} wants {name} alone, and is run onto it beside others")
            kept = self._is_alone(name) or (job.is_alone and name in taken)
            if (kept and others) or vnode.left not in ("", job.id):
                for each in taken if job.is_alone else ():
                    self.vnodes[each].left = job.id
                raise Refused(2, f"qrun: Resource temporarily unavailable {job.id}")
            taken.append(name)

    def move(self, id: str, queue: str) -> None:
        """qmove."""
        if queue not in self.queues:
            raise Refused(170, f"qmove: Unknown queue {id}")
        if id not in self.jobs:
            raise Refused(153, f"qmove: Unknown Job Id {id}")
        if "[" in id and "[]" not in id:
            raise Refused(156, f"qmove: Invalid request {id}")
        if self.jobs[id].state not in WAITS or self.jobs[id].started:
            raise Refused(168, f"qmove: Request invalid for state of job {id}")
        self.looks = True
        for each in self._family(self.jobs[id]):
            each.queue = queue

    def alter_walltime(self, id: str, walltime_s: int) -> None:
        """`qalter -l walltime=N id`, as a manager."""
        if id not in self.jobs:
            raise Refused(153, f"qalter: Unknown Job Id {id}")
        self.jobs[id].walltime_s = walltime_s

    def advise(self, id: str, points: int, who: str = "bridge") -> None:
        """`qalter -l cpsched_boost=N id`, as a manager; a changed number does not trigger the scheduler."""
        job = self.jobs.get(id)
        if job is None:
            raise Refused(153, f"qalter: Unknown Job Id {id}")
        if "[" in id and "[]" not in id:
            raise Refused(156, f"qalter: Invalid request {id}")
        if job.state in RUNS:
            raise Refused(167, f"qalter: Cannot modify attribute while job running  Resource_List.cpsched_boost {id}")
        if who == "bridge" and job.points_of == "admin" and job.points:
            self.wrongs.append(f"{id} has {job.points} points of an administrator, and gets {points}")
        for each in self._family(job):
            each.points, each.points_of = points, who

    # ------------------------------------------------------------------------------------------ what is so

    def on(self, name: str) -> list[Job]:
        """Return the jobs on a vnode."""
        return [job for job in self.jobs.values() if any(name == v for v, _ in job.placed)]

    def used(self, name: str) -> Amounts:
        """Return the assigned amounts of a vnode."""
        found: Amounts = Counter()
        for job in self.on(name):
            for vnode, amounts in job.placed:
                if vnode == name:
                    found.update(amounts)
        return found

    def states(self, name: str) -> str:
        """Return the states of a vnode."""
        vnode, used = self.vnodes[name], self.used(name)
        busy = used["ncpus"] >= vnode.has["ncpus"]
        found = {"offline": vnode.offline, "job-busy": busy, "job-exclusive": self._is_alone(name)}
        return ",".join(state for state, so in found.items() if so) or "free"

    def _is_alone(self, name: str) -> bool:
        return bool(self.vnodes[name].left) or any(job.is_alone for job in self.on(name))

    def _parent(self, job: Job) -> Job | None:
        return self.jobs.get(re.sub(r"\[\d+\]", "[]", job.id)) if "[" in job.id and "[]" not in job.id else None

    def _family(self, job: Job) -> list[Job]:
        """Return a job, with its subjobs for an array."""
        if "[]" not in job.id:
            return [job]
        stem = job.id.partition("[")[0] + "["
        return [job, *(each for each in self.jobs.values() if each.id.startswith(stem) and each is not job)]

    # ------------------------------------------------------------------------------------------ time

    def tick(self, seconds: int = 1) -> None:
        """Advance time: moms answer, jobs end, PBS's own scheduler starts jobs."""
        for _ in range(seconds):
            self.now_s += 1
            for job in [each for each in self.jobs.values() if each.state in "RE"]:
                if job.state == "E":
                    self._leave(job, "R")
                elif job.substate == 41:
                    self._taken(job)
                elif self.now_s >= job.start_s + min(job.runs_s, job.walltime_s):
                    self._end(job, "E", 0)
            for job in self.jobs.values():
                self._settle(job)
            looks = self.moments is None and (self.looks or self.now_s % ITERATION_S == 0)
            if self.schedules and looks and not self.down:
                self._begin_schedule()
                self._finish_schedule()

    def meanwhile(self) -> None:
        """Let PBS's own scheduler read the state or start the jobs that it chose, between two commands."""
        if self.moments is None or self.down:
            return
        if self.about_to_start is not None:
            if self.moments.random() < 0.3:
                self._finish_schedule()
        elif self.schedules and self.moments.random() < 0.15:
            self._begin_schedule()

    def _finish_schedule(self) -> None:
        """Start the choices, with no more checks than for a `qrun`."""
        for id, placed in self.about_to_start or []:
            job = self.jobs.get(id)
            if job is not None and job.state == "Q" and all(name in self.vnodes for name, _ in placed):
                job.walltime_s = job.walltime_s if job.between_s is None else job.between_s[1]
                self._start(job, placed)
        self.about_to_start = None

    def _begin_schedule(self) -> None:
        """Choose by formula, then first come, first fit, in started queues."""
        self.looks, self.about_to_start = False, []
        for job in sorted(self.jobs.values(), key=lambda each: -each.points if POINTS in self.formula else 0):
            parent = self._parent(job)
            held = job.state != "Q" or (parent is not None and parent.state == "H")
            if held or "[]" in job.id or not self.queues[job.queue].started:
                continue
            if placed := self.fitting(job, self.about_to_start):
                self.about_to_start.append((job.id, placed))

    def fitting(self, job: Job, beside: Sequence[tuple[str, Placed]] = ()) -> Placed:
        """Return the placement of a job that fits together with jobs about to start, or an empty one."""
        grouped = "group=rack" in job.place.split(":")
        racks = [{rack} for rack in sorted({vnode.rack for vnode in self.vnodes.values()})]
        tries = racks if grouped else [set().union(*racks)]
        return next(filter(None, (self._fitting(job, each, beside) for each in tries)), ())

    def _fitting(self, job: Job, racks: set[str], beside: Sequence[tuple[str, Placed]]) -> Placed:
        alone = {name for id, placed in beside if self.jobs[id].is_alone for name, _ in placed}
        free = {
            name: Counter(vnode.has) - self.used(name)
            for name, vnode in self.vnodes.items()
            if self.states(name) == "free" and vnode.rack in racks and name not in alone
        }
        for _, placed in beside:
            for name, used in placed:
                if name in free:
                    free[name] -= used
        if job.is_alone:
            taken = {name for _, placed in beside for name, _ in placed}
            free = {name: room for name, room in free.items() if not self.on(name) and name not in taken}
        placed: list[tuple[str, Amounts]] = []
        for chunk in job.chunks:
            name = next((each for each, room in free.items() if all(room[what] >= n for what, n in chunk.items())), "")
            if not name:
                return ()
            placed.append((name, chunk))
            free[name] = Counter() if "scatter" in job.place else free[name] - chunk
        return tuple(placed)

    def _start(self, job: Job, placed: Placed) -> None:
        job.state, job.substate, job.placed, job.start_s = "R", 41, placed, self.now_s
        parent = self._parent(job)
        if parent is not None and not parent.started:
            parent.started, parent.state, parent.start_s = True, "B", self.now_s
            self._write("S", parent)
        self._write("S", job)
        for name in {name for name, _ in placed}:
            if self.used(name) - self.vnodes[name].has:
                self.wrongs.append(f"{job.id} is run onto {name}, which has no room")

    def _taken(self, job: Job) -> None:
        """Let the mom accept a job, or reject one whose chunks differ from its request."""
        if len(job.placed) != len(job.chunks):
            self.wrongs.append(f"{job.id} is run with {len(job.placed)} chunks, and asked for {len(job.chunks)}")
            self.refuse(job.id)
        elif job.id in self.refused:
            self.refused.discard(job.id)
            self.refuse(job.id)
        else:
            job.substate = 42

    def refuse(self, id: str) -> None:
        """Let the host reject a job, which keeps its vnodes for a moment and then waits again."""
        job = self.jobs[id]
        job.state, job.substate, job.run_count, job.exit_status = "E", 62, job.run_count + 1, REFUSED_BY_MOM

    def _end(self, job: Job, kind: str, status: int) -> None:
        job.run_count, job.exit_status = job.run_count + 1, status
        self._leave(job, kind)

    def _leave(self, job: Job, kind: str) -> None:
        self._write(kind, job)
        self.looks = True
        for name, _ in job.placed:
            if self.vnodes[name].left == job.id:
                self.vnodes[name].left = ""
        job.placed, job.substate = (), 10
        if kind == "R":
            job.state = "Q"
            self._settle(job)
            return
        self._forget(job)

    def _forget(self, job: Job) -> None:
        for each in self._family(job):
            each.state = "F"
            self.past[each.id] = self.jobs.pop(each.id)
        parent = self._parent(job)
        if parent is not None and len(self._family(parent)) == 1:
            self._write("E", parent)
            self._forget(parent)

    # ------------------------------------------------------------------------------------------ the accounting log

    def _write(self, kind: str, job: Job) -> None:
        resources = {"select": job.select, "place": job.place, "walltime": clock(job.walltime_s)}
        said: Mapping[str, object] = {
            "user": job.user, "group": job.user, **({"account": f'"{job.account}"'} if job.account else {}),
            "project": "_pbs_project_default", "jobname": job.name, "queue": job.queue, "ctime": job.ctime,
            "qtime": job.ctime, "etime": job.ctime, **({"start": job.start_s} if kind != "Q" else {}),
            **({"array_indices": job.indices} if job.indices else {}),
            **({"exec_host": hosts_of(job.placed), "exec_vnode": words_of(job.placed)} if job.placed else {}),
            **{f"Resource_List.{name}": value for name, value in resources.items()},
            **({"session": 1, "end": self.now_s, "Exit_status": job.exit_status, "run_count": job.run_count}
               if kind in "ER" else {}),
        }  # fmt: skip
        self._note(kind, job.id, " ".join(f"{name}={value}" for name, value in said.items()))

    def _note(self, kind: str, id: str, words: str) -> None:
        self.log.append(f"{time.strftime('%m/%d/%Y %H:%M:%S', time.gmtime(self.now_s))};{kind};{id};{words}")


def clock(seconds: int) -> str:
    """`01:00:00`."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
