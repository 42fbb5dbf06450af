"""Run a history: a bridge on a site, its crashes and restarts, its files, and the check after each step."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.model import Job
from cpsched_bridge.cycle.booster import remove_all_boosts
from cpsched_bridge.cycle.bridge_loop import Bridge
from cpsched_bridge.cycle.release_jobs import release_all_jobs
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.store.ledger import Ledger, LedgerState
from cpsched_bridge.store.state_tables import BoostLedger
from tests.bridges import a_bridge, narrow_advice, quiet_folder
from tests.builders import a_job
from tests.chaos import judge
from tests.chaos.disk import ERRORS, Disk
from tests.chaos.history import FAULTS, History, Step
from tests.chaos.site import NODES, Death, PreemptingSite, PreemptingSiteBackend, Site, SiteBackend, SiteJob
from tests.fakes import FakePace

CALM_CYCLES = 400
"""Number of cycles without faults after a history, in which every job must run."""
START_TIMEOUT_S = 8
LARGEST_STEP_S = 60
SPARE_S = 3
"""Seconds after a start's deadline within which it must be undone."""
LONG_ADVISED = 2 * LARGEST_STEP_S + 10
"""The same in mode advise, where a refused command is repeated later, and the clock may step back."""
LONG_PAUSED = 3
"""Successful cycles of a paused bridge after which no job may be held."""


@dataclass
class World:
    """The site, the disk, and a bridge that is running or starts with the next cycle."""

    history: History
    state_dir: Path
    site: Site = field(init=False)
    disk: Disk = field(init=False)
    pace: FakePace = field(default_factory=FakePace)
    counts: Counter[str] = field(default_factory=Counter)
    _bridge: Bridge | None = None
    _next_id: int = 1
    _arrived: set[int] = field(default_factory=set)
    _lost: set[int] = field(default_factory=set)
    """Jobs missing from the reading of the last cycle or the next cycle."""
    _sent: set[int] = field(default_factory=set)
    _paused: int = 0
    mode: str = field(init=False)
    _unheld: int = 0
    """Number of consecutive successful cycles in mode advise."""
    _good_since_s: int = 0
    """Steady-clock time since which every cycle was successful and in control."""

    def __post_init__(self) -> None:
        self.mode = self.history.mode
        plugin, launch_s = self.history.plugin, self.history.launch_s
        self.site = Site(plugin=plugin, launch_s=launch_s)
        if self.history.preempts:
            mode = ("requeue", "cancel")[self.history.seed % 2]
            self.site = PreemptingSite(plugin=plugin, launch_s=launch_s, ending_s=1 + launch_s, mode=mode)
        self.disk = Disk(self.site.fuse)

    # the bridge's life ----------------------------------------------------------------------------------------

    def _born(self) -> Bridge:
        if self._bridge is None:
            self._bridge = a_bridge(
                self.state_dir,
                self._backend(),
                EasyDispatcher(),
                self.pace,
                mode=self.mode,
                advise={"every_s": 2, "max_boost": 500},
                start={"timeout_s": START_TIMEOUT_S, "adopt": self.history.adopt, "max_failures": 2},
                preemption={"choose": self.history.preempts},
                circuit_breaker={"failing_users": 10**6},
                heartbeat=self.state_dir / "beat" / "heartbeat",
            )
        return self._bridge

    def _backend(self) -> SiteBackend:
        return PreemptingSiteBackend(self.site) if isinstance(self.site, PreemptingSite) else SiteBackend(self.site)

    def _bury(self, why: str) -> None:
        """Drop the process and its memory."""
        self.site.note(why)
        self._sent = self._held_now
        self.disk.drop()
        self._bridge = None
        self.site.fuse.left, self.site.fuse.dead = None, False

    def cycle(self) -> None:
        """Run one cycle, one second after the previous one. Then check the ledger."""
        self.site.advance(1)
        self.pace.at_s += 1
        if self.site.unseen is None:
            self._lost.clear()
        self._arrived |= self._lost
        try:
            with narrow_advice():
                report = self._born().cycle()
        except Death:
            self._bury("the bridge is killed")
            self.counts["killed"] += 1
            return
        except sqlite3.Error as error:  # at start-up; the service manager restarts the bridge
            self._bury(f"the bridge cannot start: {error}")
            self.counts["cannot start"] += 1
            return
        self.counts[report.result] += 1
        self.site.note(f"cycle {report.number}: {report.role.mode} {report.result}")
        self._look(report)

    @property
    def _held_now(self) -> set[int]:
        """Return the jobs that the bridge holds or may hold, according to its ledger when it last ran."""
        if self._bridge is not None:
            sending = [LedgerState.HELD, LedgerState.HOLDING, LedgerState.ROLLING_BACK, LedgerState.RELEASING]
            if self.disk.trouble:  # a start may have been undone without a record in the ledger
                sending.append(LedgerState.STARTING)
            self._sent = {entry.job_id for entry in self._bridge.ledger.list_entries(*sending)}
        return self._sent | self._lost

    def _look(self, report: CycleReport) -> None:
        bridge = self._born()
        good = report.result == "ok" and not any(o.result != "done" for _, o in report.outcomes)
        self._paused = self._paused + 1 if good and report.role.mode == "paused" else 0
        if self._paused > LONG_PAUSED:
            self.site.wrongs += judge.after_handing_all_back(self.site, frozenset(self.site.jobs) - self._arrived)
            self.site.wrongs += judge.points_left(self.site, LONG_PAUSED + 1)
        self._unheld = self._unheld + 1 if good and report.role.mode == "advise" else 0
        if self._unheld > LONG_ADVISED:
            self.site.wrongs += judge.held_though_advised(self.site, frozenset(self.site.jobs) - self._arrived)
        if not (good and report.role.mode == "control"):
            self._good_since_s = max(self._good_since_s, self.site.now_s)
        self.site.wrongs += judge.pinned_too_long(self.site, self._good_since_s, START_TIMEOUT_S + SPARE_S)
        if good and report.role.mode == "control":
            self.site.wrongs += judge.after_a_good_cycle(self.site, bridge.ledger.by_id, frozenset(self._arrived))
        self._arrived.clear()

    # what happens ---------------------------------------------------------------------------------------------

    def play(self) -> judge.Verdict:
        """Run the whole history, then a long calm period. Return the result."""
        (self.state_dir / "beat").mkdir()
        with self.disk.under_sqlite():
            for step in self.history.steps:
                self._do(step)
                if self.site.wrongs:
                    break
            else:
                self._calm_down()
            self._bury("the end")
        if isinstance(self.site, PreemptingSite):
            self.counts["preempted"] = self.site.stops
        return judge.Verdict(self.site.wrongs, self.site.log, self.counts)

    def _do(self, step: Step) -> None:
        if step.kind in FAULTS:
            self.site.trouble.append((step.kind, step.a))
            return
        if step.kind in ERRORS:
            self._fail_disk(step.kind)
            return
        getattr(self, "_" + step.kind.replace(" ", "_"))(step)

    def _cycle(self, step: Step) -> None:
        self.cycle()

    def _submit(self, step: Step) -> None:
        rng = random.Random(step.a)
        units, per_unit, walltime_s = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 2, 3, 4)), rng.choice((5, 20, 60))
        facts = {"submit_s": self.site.shown_s, "user": f"u{step.b % 3}"}
        if self.history.preempts:
            facts["qos"] = ("high", "low")[step.b // 3 % 3 > 0]
        self._arrive(a_job(self._next_id, units, per_unit, walltime_s, **facts), rng.randrange(1, walltime_s + 1))

    def _submit_job_that_never_starts(self, step: Step) -> None:
        rng = random.Random(step.a)
        units, walltime_s = rng.randrange(1, 17), 5 + rng.randrange(6)
        job = a_job(self._next_id, units, 1, walltime_s, submit_s=self.site.shown_s, user="mallory")
        self._arrive(job, walltime_s, ("silent", "shut out", "refused")[step.b % 3])
        self.counts["without result"] += 1

    def _arrive(self, job: Job, run_s: int, stubborn: str = "") -> None:
        self.site.arrive(job, run_s, stubborn)
        self._arrived.add(job.id)
        self._next_id += 1

    def _on(self, step: Step, fits, act) -> None:
        job: SiteJob | None = self.site.which(step.a, fits)
        if job is not None:
            self.counts[step.kind] += 1
            act(job)

    def _cancel(self, step: Step) -> None:
        self._on(step, lambda job: not job.over, lambda job: self.site.finish(job, "been cancelled"))

    def _owner_holds(self, step: Step) -> None:
        self._on(step, lambda job: job.pending and job.held_by != "admin", lambda job: self.site.hold_for(job, "owner"))

    def _owner_releases(self, step: Step) -> None:
        self._on(step, lambda job: job.pending and job.held_by == "owner", self.site.end_hold)

    def _admin_holds(self, step: Step) -> None:
        """Hold a job that is not held; a second hold would not change anything visible.

        Without the plugin, an administrator's hold cannot be distinguished from the bridge's.
        """

        def fits(job: SiteJob) -> bool:
            return job.pending and job.held_by == "nobody" and (self.site.plugin or job.job.id not in self._held_now)

        self._on(step, fits, lambda job: self.site.hold_for(job, "admin"))

    def _admin_releases(self, step: Step) -> None:
        self._on(step, lambda job: job.pending and job.held_by != "nobody", self.site.end_hold)

    def _requeue(self, step: Step) -> None:
        self._on(step, lambda job: job.running, lambda job: self.site.put_back(job, held=False))

    def _requeue_and_hold(self, step: Step) -> None:
        def fits(job: SiteJob) -> bool:
            return job.running and (self.site.plugin or job.job.id not in self._held_now)

        self._on(step, fits, lambda job: self.site.put_back(job, held=True))

    def _admin_sets_points(self, step: Step) -> None:
        """Set the points of a job that is not held, sometimes to none."""

        def put(job: SiteJob) -> None:
            job.points, job.points_of = (10_000 + step.b % 1000) * (step.b % 3 > 0), "admin"
            self.site.note(f"job {job.job.id} is given {job.points} points by admin")

        self._on(step, lambda job: job.pending and job.held_by == "nobody", put)

    def _change_the_mode(self, step: Step) -> None:
        if not self.disk.trouble:
            self.mode = "control" if self.mode == "advise" else "advise"
            self._die_now(f"the bridge dies, and the next one is to be in mode {self.mode}")
            self.counts[step.kind] += 1

    def _node_down(self, step: Step) -> None:
        if len(self.site.drained) < NODES - 1:
            self.site.node_down(step.a % NODES)

    def _node_up(self, step: Step) -> None:
        self.site.drained.discard(step.a % NODES)

    def _node_leaves(self, step: Step) -> None:
        before = {id for id, job in self.site.jobs.items() if not job.over}
        self.site.node_leaves(step.a % NODES)
        self.counts["given up"] += sum(bool(self.site.jobs[id].over) for id in before)

    def _stall(self, step: Step) -> None:
        """Stall a start, like a limit of the cluster."""
        self.site.stalls += 1

    def _lose_sight(self, step: Step) -> None:
        """Hide a job that the bridge holds."""

        def lose(job: SiteJob) -> None:
            self._lost.add(job.job.id)
            self.site.unseen = job.job.id
            self.site.note(f"the cluster loses sight of job {job.job.id}")

        self._on(step, lambda job: job.pending and job.held_by in judge.OURS, lose)

    def _clock(self, step: Step) -> None:
        self.site.clock_off_s = max(-self.site.now_s, step.a % (2 * LARGEST_STEP_S + 1) - LARGEST_STEP_S)
        self._step_the_clock()
        self.site.note(f"the clock is {self.site.clock_off_s} s off")

    def _step_the_clock(self) -> None:
        """Note a step of the clock; after a step back, a late start is noticed later."""
        self._good_since_s = self.site.now_s + 2 * LARGEST_STEP_S

    def _fail_disk(self, kind: str) -> None:
        self.disk.trouble = kind
        shutil.rmtree(self.state_dir / "beat", ignore_errors=True)
        self.site.note(f"the disk is {kind}")

    def _disk_is_well(self, step: Step) -> None:
        self.disk.trouble = ""
        (self.state_dir / "beat").mkdir(exist_ok=True)

    def _kill(self, step: Step) -> None:
        """Kill the bridge at a future boundary, usually an early one, because a cycle has few boundaries."""
        self.site.fuse.left = step.a % (3 + step.b % 40)

    def _stop(self, step: Step) -> None:
        """Stop the bridge as systemd does. The next cycle starts a new bridge."""
        self.site.unseen = None
        if self._bridge is None:
            return
        try:
            problems = self._bridge.stop()
        except Death:
            self.counts["killed"] += 1
        else:
            self.counts["stopped"] += not problems
            self._look_at_what_is_released(problems)
        self._bury("the bridge stops")

    def _look_at_what_is_released(self, problems: list[str]) -> None:
        """Check that no job is left held unless the disk or an obstacle prevented its release."""
        if not problems or (self.disk.trouble and all("ledger cannot be written" in words for words in problems)):
            self.site.wrongs += judge.after_handing_all_back(self.site, frozenset(self.site.jobs))
            self.site.wrongs += judge.points_left(self.site)

    def _release_all(self, step: Step) -> None:
        """Run `cpsched release-all` with the bridge dead."""
        self._die_now("the bridge dies, and everything is released by hand")
        self.site.fuse.left, self.site.unseen = None, None
        if not self._ledger_file.exists():
            return
        try:
            ledger = Ledger(self._ledger_file, durable=False)
        except sqlite3.Error as error:
            self._bury(f"nothing can be released: {error}")
            return
        backend, book = SiteBackend(self.site), BoostLedger(ledger.file)
        problems = release_all_jobs(backend, ledger, "release-all") + remove_all_boosts(backend, book)
        self.counts["released by hand"] += not problems
        self._look_at_what_is_released(problems)
        self._bury("all is released")

    def _pause(self, step: Step) -> None:
        if not self.disk.trouble and self._bridge is not None:
            self._bridge.pause.pause("for a while")

    def _resume(self, step: Step) -> None:
        (self.state_dir / "paused").unlink(missing_ok=True)

    # changes of the ledger while no bridge runs ---------------------------------------------------------------

    @property
    def _ledger_file(self) -> Path:
        return self.state_dir / "state.sqlite"

    def _die_now(self, words: str) -> None:
        if self._bridge is not None:
            self._bury(words)

    def _cut_the_ledger(self, step: Step) -> None:
        """Truncate the ledger at any byte, without its write-ahead log."""
        self._die_now("the bridge dies, and its ledger is cut")
        if self._ledger_file.exists():
            size = self._ledger_file.stat().st_size
            with self._ledger_file.open("r+b") as file:
                file.truncate(step.a % (size + 1))
            self.counts[step.kind] += 1
            self.site.fuse.left = None
            self.disk.drop()
            self._forget_preemptions()

    def _back_up_the_ledger(self, step: Step) -> None:
        if self._ledger_file.exists() and self._bridge is None:
            shutil.copy(self._ledger_file, self.state_dir / "backup")

    def _restore_the_ledger(self, step: Step) -> None:
        if (self.state_dir / "backup").exists():
            self._die_now("the bridge dies, and an old ledger is restored")
            shutil.copy(self.state_dir / "backup", self._ledger_file)
            self.counts[step.kind] += 1
            self._forget_preemptions()

    def _forget_preemptions(self) -> None:
        """Note that the file may lack the preemptions that were recorded in it, or since its backup."""
        if isinstance(self.site, PreemptingSite):
            self.site.forgotten |= set(self.site.plans)

    # the end --------------------------------------------------------------------------------------------------

    def _calm_down(self) -> None:
        """End all faults. Every job that can run must then end."""
        self.site.note("calm")
        self.site.trouble.clear()
        self.site.stalls = 0
        self.site.drained.clear()
        self.site.fuse.left, self.site.clock_off_s = None, 0
        self._step_the_clock()
        self._disk_is_well(Step("disk is well"))
        self._resume(Step("resume"))
        for _ in range(CALM_CYCLES):
            self.cycle()
            open_jobs = [
                job
                for job in self.site.jobs.values()
                if not job.over and not job.stubborn and job.held_by not in ("owner", "admin")
            ]
            if self.site.wrongs or not open_jobs:
                break
        self.site.wrongs += judge.at_the_end(self.site)


def play(history: History) -> judge.Verdict:
    """Run a history in its own directory, in memory if possible."""
    with quiet_folder() as folder:
        return World(history, folder).play()
