"""Simulate several bridges on one cluster in one process.

Each bridge process is a thread, and exactly one thread runs at a time. A backend call takes simulated time before and
after its effect, and other processes run meanwhile. All choices are in a `SeveralBridgesHistory`, so that a history
replays exactly.

python -m tests.chaos.several_bridges SEED
"""

from __future__ import annotations

import heapq
import itertools
import random
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched_bridge.cycle.leader_election import JOBS_RELEASED, RELEASED, PeerLink, PeerMessage
from cpsched_bridge.cycle.release_jobs import release_all_jobs
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable
from cpsched_bridge.ports import Hold, Lease, Outcome, StartOrder
from cpsched_bridge.store.ledger import Ledger, LedgerState
from tests.bridges import OpenBridge, a_bridge, quiet_folder
from tests.builders import a_cluster, a_job
from tests.chaos import judge
from tests.chaos.disk import Disk
from tests.chaos.site import Death, Fuse, Site, SiteBackend
from tests.fakes import FakePace

T = TypeVar("T")

LEASE_S = 30.0
CYCLE_S = 1.0
EVENTS_S = 40
"""Seconds in which events happen."""
CALM_S = 120
"""Maximum number of seconds without events, until all jobs have run."""
CALL_S = 0.15
"""Seconds before and after the effect of a call."""
START_TIMEOUT_S = 8
MAX_STALLS = 2
"""Maximum number of stalled starts, whose backoff grows, so that the calm period is long enough."""
DEADLINE_S = 8.0
"""Maximum seconds of a slow call."""
PINNED_S = START_TIMEOUT_S + 4
"""Maximum seconds for which a job may wait with a pin while the leader works."""
UNLED_S = 15.0
"""Maximum seconds without a cycle of a leader while another bridge could lead."""
FREE_RUNS = (RELEASED, JOBS_RELEASED)
COMMANDS = ("start", "hold", "release", "unpin")
OURS = judge.OURS

KINDS = (
    "kill",  # SIGKILL at a boundary: a statement of the ledger, or a job of a command
    "kill now",  # SIGKILL, also in the middle of a call
    "stop",  # an orderly stop
    "suspend",  # SIGSTOP, also in the middle of a call; without the submit plugin, not of a command
    "suspend in reading",  # after the cluster has made the next reading, so that its decision is late
    "suspend in command",  # before the next command takes effect
    "lose answer",  # of the next call
    "late",  # the next command times out, and takes effect later
    "fail",  # the next call has no effect
    "slow",  # the next call
    "outage",  # of the cluster's controller
    "disk",  # statements fail
    "delete lease",
    "take over",  # by command
    "cut",  # the link between two hosts
    "restart controller",
    "clock",  # the wall clock of a host is set
    "drain",  # a node accepts no jobs
    "stall",  # the next start has no effect until the job is held again
    "requeue",  # of a running job, without a hold
    "pause",  # `cpsched pause`, and later `cpsched resume`
    "hang",  # of the main loop, while the link's threads run
)
UNSAFE_WITHOUT_FENCE = frozenset({"suspend in command", "late", "slow", "take over", "delete lease"})
"""Events after which a command may arrive that was sent before a takeover. Only the submit plugin can refuse it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a host or to the cluster at a time of the history."""

    at_s: float
    kind: str
    host: int
    seconds: float
    number: int
    """For a kill, the number of boundaries that the process passes before."""


@dataclass(frozen=True, slots=True)
class SeveralBridgesHistory:
    """All choices of a history."""

    seed: int
    hosts: int
    plugin: bool
    linked: bool
    """Whether the first two hosts exchange messages."""
    jobs: tuple[tuple[float, int, int], ...]
    """Submissions: time, units, run time."""
    events: tuple[Event, ...]

    def without_unsafe_events(self) -> SeveralBridgesHistory:
        """Return the history without the events that only the submit plugin makes safe, if there is none."""
        safe = (each for each in self.events if self.plugin or each.kind not in UNSAFE_WITHOUT_FENCE)
        return replace(self, events=tuple(safe))


def history_of(seed: int, only: Sequence[str] = KINDS) -> SeveralBridgesHistory:
    """Return the history of a seed, with `only` these kinds of events if they are safe."""
    rng = random.Random(seed)
    hosts, plugin = rng.choice((2, 2, 2, 3)), rng.random() < 0.75
    linked = rng.random() < 0.8
    kinds = [kind for kind in KINDS if plugin or kind not in UNSAFE_WITHOUT_FENCE]
    kinds = rng.sample(kinds, rng.randrange(1, len(kinds)))  # each history has some kinds of faults only
    if only != KINDS:
        kinds = [kind for kind in only if plugin or kind not in UNSAFE_WITHOUT_FENCE] or kinds
    events = [
        Event(
            round(rng.uniform(0, EVENTS_S), 2),
            rng.choice(kinds),
            rng.randrange(hosts),
            round(rng.choice((0.5, 3.0, 8.0, 30.0)) * rng.uniform(0.5, 1.5), 2),
            rng.randrange(40),
        )
        for _ in range(rng.randrange(1, 12))
    ]
    jobs = [
        (round(rng.uniform(0, EVENTS_S), 2), rng.choice((1, 2, 4)), rng.randrange(1, 25))
        for _ in range(rng.randrange(2, 15))
    ]
    return SeveralBridgesHistory(
        seed, hosts, plugin, linked, tuple(sorted(jobs)), tuple(sorted(events, key=lambda each: each.at_s))
    )


class HistoryEnded(BaseException):
    """The exception that ends a process when the history ends."""


class SharedSite(Site):
    """A site that records which process changed which job, and checks each change."""

    sender: BridgeHost | None = None
    sender_run, sender_epoch = "", 0
    """The host whose command takes effect now, and the process and epoch that have sent it."""

    def __init__(self, plugin: bool) -> None:
        super().__init__(plugin=plugin, cluster=a_cluster(2, 4), own_scheduler=True, launch_s=2)
        self.reigns: dict[str, int] = {}
        """Number of the last change of the lease's owner to each process."""
        self.newest_reign = 0
        """The newest reign of which a change has been accepted."""
        self.reign_count = 0
        self.claims = 0
        self.lease_times_s: list[float] = []
        """Times at which a bridge wrote its lease."""
        self.epoch = 0
        """The largest epoch of an accepted change, which the submit plugin keeps in a file."""

    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        before = self.claimed
        taken = super().acquire_lease(lease, expected)
        self.claims += 1
        if taken and self.sender is not None:
            self.lease_times_s.append(self.sender.world.now_s)
        if taken and (before is None or before.owner != lease.owner):
            self.reigns[lease.run] = self.reign_count = self.reign_count + 1
            self.note(f"lease: {lease}")
        return taken

    def refuses(self) -> bool:
        """Return whether the submit plugin refuses the change because a later epoch has changed jobs."""
        if not self.plugin or self.sender is None or not self.sender_epoch:
            return False
        self.epoch = max(self.epoch, self.sender_epoch)
        return self.sender_epoch < self.epoch

    def check_change(self, call: str, job_id: int) -> None:
        """Record a violation if a process whose successor has changed jobs changes a job."""
        host = self.sender
        if host is None or not (self.plugin or call in ("start", "hold")):  # others release what only they know
            return
        reign = self.reigns.get(self.sender_run, 0)
        written_s = max((time_s for time_s in self.lease_times_s if time_s <= host.observed_s), default=-LEASE_S)
        is_led = any(each.leads_and_runs(self.claimed) for each in host.world.hosts)
        is_led = is_led and host.observed_s - written_s < LEASE_S
        has_leader_changed_jobs = is_led and self.newest_reign == self.reign_count
        # A paused bridge may release jobs as long as no leader has changed any, or if it read an expired lease.
        if reign < self.newest_reign and (has_leader_changed_jobs or call in ("start", "hold")):
            self.wrongs.append(f"{self.now_s}: {call} of job {job_id} by {host.name}, whose successor has changed jobs")
        self.newest_reign = max(self.newest_reign, reign)

    def _batch(self, name: str, ids: Sequence[int], works: Sequence[Callable[[], Outcome]]) -> Sequence[Outcome]:
        checked = [partial(self._checked, name, id, work) for id, work in zip(ids, works, strict=True)]
        return super()._batch(name, ids, checked)

    def _checked(self, call: str, job_id: int, work: Callable[[], Outcome]) -> Outcome:
        if self.refuses():
            self.note(f"{call} of job {job_id} refused: an earlier epoch")
            return Outcome(job_id, "refused", "another bridge has taken over", "not_sent")
        outcome = work()
        if outcome.result == "done":
            self.check_change(call, job_id)
        return outcome


class HostPace(FakePace):
    """A host's clock. Monotonic clocks of hosts differ, and do not jump."""

    def __init__(self, world: World, offset_s: float) -> None:
        super().__init__()
        self._world, self._offset_s = world, offset_s
        self.set_by_s = 0.0

    def monotonic_s(self) -> float:
        return self._world.now_s + self._offset_s

    def unix_s(self) -> float:
        return 1e9 + self._world.now_s + self.set_by_s


class HostBackend(SiteBackend):
    """The ports of one process. Its calls take time, and may fail."""

    def __init__(self, site: SharedSite, host: BridgeHost) -> None:
        super().__init__(site)
        self._host = host
        self.epoch = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.site, name)
        if name not in (*COMMANDS, "acquire_lease"):
            return found
        return lambda *arguments: self._host.call(name, lambda: found(*arguments))

    def observe(self, pinned: Any = ()) -> Any:
        return self._host.call("observe", lambda: super(HostBackend, self).observe(pinned))

    def read_history(self) -> Any:
        return self._host.call("read_history", lambda: super(HostBackend, self).read_history())

    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        missing = [order.job_id for order in orders if not self._host.has_intent(order)]
        if missing or not {order.job_id for order in orders} <= self.startable:
            self.site.wrongs.append(f"{self._host.name} starts {orders} without an intent {missing} or a reading")
        return self._host.call("start", lambda: self.site.start(orders))


@dataclass(eq=False)
class BridgeHost:
    """A host with one bridge process at a time, which runs in a thread."""

    world: World
    number: int
    folder: Path
    fuse: Fuse = field(default_factory=Fuse)
    bridge: OpenBridge | None = None
    next_calls: list[Event] = field(default_factory=list)
    """Events that concern the next calls, in order."""
    next_commands: list[Event] = field(default_factory=list)
    """Events that concern the next commands, in order."""
    frozen_until_s: float = 0.0
    hung_until_s: float = 0.0
    """Times until which the process is suspended, and its main loop hangs."""
    observed_s: float = 0.0
    """Time of the last observation."""
    down_until_s: float = 0.0
    is_killed: bool = False
    is_stopping: bool = False
    is_sending_unfenced: bool = False
    """Whether a command is on its way that no submit plugin could refuse."""
    is_in_link_thread: bool = False
    """Whether the calls are those of the thread that keeps the link. They take no time."""
    healthy_since_s: float = 0.0
    """Time since which the process has been running without a fault."""
    wake: int = 0
    """Number of the last sleep; an older wake-up has no effect."""
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.name = f"host{self.number}"
        self.disk = Disk(self.fuse)
        self.pace = HostPace(self.world, 1e5 * self.number)
        self.folder.mkdir(parents=True)
        self.thread = threading.Thread(target=self._run, daemon=True)

    @property
    def run(self) -> str:
        """The name of the process in the lease."""
        return self.bridge.mode.leader_election.mine.run if self.bridge is not None else ""

    @property
    def bridge_name(self) -> str:
        """The name of the bridge in the lease."""
        return self.bridge.mode.leader_election.mine.bridge if self.bridge is not None else ""

    def leads_and_runs(self, lease: Lease | None) -> bool:
        """Return whether this host's process holds the lease, and is neither suspended nor known to hang."""
        now_s = self.world.now_s
        is_running = self.bridge is not None and now_s >= self.frozen_until_s and now_s - self.observed_s < LEASE_S
        return is_running and lease is not None and lease.run == self.run

    def has_intent(self, order: StartOrder) -> bool:
        """Return whether the ledger records the intent to start a job on these nodes."""
        entry = self.bridge.ledger.get(order.job_id) if self.bridge is not None else None
        return entry is not None and entry.state is LedgerState.STARTING and entry.nodes == order.nodes

    # the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self.go.acquire()
        try:
            while True:
                self._live()
                self.sleep(max(0.1, self.down_until_s - self.world.now_s))
        except HistoryEnded:
            self._bury()
        except BaseException as error:
            self.world.failure = error
        self.world.control.release()

    def _live(self) -> None:
        """Run one process from its start to its end."""
        try:
            self._born()
            while True:
                assert self.bridge is not None
                if self.is_stopping:
                    self.bridge.stop()
                    self.world.counts["stopped"] += 1
                    return
                report = self.bridge.cycle()
                self.world.record_cycle(self, report)
                self.sleep(CYCLE_S)
        except Death:
            self.world.counts["killed"] += 1
            self.world.site.note(f"{self.name} is killed")
        except sqlite3.Error:
            self.world.counts["cannot start"] += 1
        finally:
            self._bury()

    def _born(self) -> None:
        self.is_killed = self.is_stopping = self.is_sending_unfenced = False
        self.fuse.left, self.fuse.dead = None, False
        self.observed_s = self.world.now_s
        self.healthy_since_s = max(self.healthy_since_s, self.world.now_s)  # an outage may continue
        with self.disk.under_sqlite():
            self.bridge = a_bridge(
                self.folder,
                HostBackend(self.world.site, self),
                EasyDispatcher(),
                self.pace,
                circuit_breaker={"failing_users": 10**6},
                lease={"duration_s": LEASE_S},
                start={"timeout_s": START_TIMEOUT_S, "max_failures": 10**6},
                link=PeerLink(self._send_to_peer),
            )
        self.world.at(self.world.now_s + 0.5, partial(self._keep_link, self.bridge))

    # the link -------------------------------------------------------------------------------------------------

    def _keep_link(self, bridge: OpenBridge) -> None:
        """Do what the link's thread does once a second."""
        if self.bridge is not bridge:
            return
        if self.world.now_s >= self.frozen_until_s:
            self.is_in_link_thread = True
            bridge.mode.leader_election.keep_link(self.pace.monotonic_s())
            self.is_in_link_thread = False
        self.world.at(self.world.now_s + 1.0, partial(self._keep_link, bridge))

    def _send_to_peer(self, message: PeerMessage) -> PeerMessage | None:
        world = self.world
        peer = world.hosts[1 - self.number] if self.number < 2 and world.history.linked else None
        if peer is None or peer.bridge is None or world.now_s < max(peer.frozen_until_s, world.cut_until_s):
            return None
        return peer.bridge.mode.leader_election.link.receive(message, peer.pace.monotonic_s())

    def _bury(self) -> None:
        self.bridge = None
        self.next_calls.clear()
        self.next_commands.clear()
        self.disk.drop()
        self.disk.trouble = ""
        self.fuse.left, self.fuse.dead = None, False

    def sleep(self, seconds: float) -> None:
        """Let other processes run. Raise `Death` or `HistoryEnded`."""
        self.wake += 1
        self.world.wake_at(self.world.now_s + seconds, self)
        self.world.control.release()
        self.go.acquire()
        if self.world.is_ended:
            raise HistoryEnded
        if self.is_killed or self.fuse.dead:
            self.is_killed = False
            self.fuse.dead = True
            raise Death

    # calls ----------------------------------------------------------------------------------------------------

    def call(self, name: str, work: Callable[[], T]) -> T:
        """Run a call of the backend, with the next fault."""
        if self.is_in_link_thread:
            if self.world.now_s - self.observed_s > LEASE_S:
                self.world.site.wrongs.append(f"{self.world.now_s}: {self.name} renews its lease although it hangs")
            if self.world.outage_until_s > self.world.now_s:
                raise BackendUnavailable("no connection")
            return self._take_effect(work, Fuse(), self.run, 0)
        self.fuse.burn()
        lease = self.world.site.claimed
        if name in ("start", "hold") and lease is not None and lease.run != self.run and not self.world.is_forced:
            self.world.site.wrongs.append(f"{self.world.now_s}: {name} sent by {self.name}, without the lease")
        events = self.next_commands if name in COMMANDS and self.next_commands else self.next_calls
        event = events.pop(0) if events else None
        kind = "" if event is None else event.kind
        assert self.bridge is not None
        sent = self.run, self.bridge.backend.epoch
        if event is not None and kind == "suspend in command":
            self.frozen_until_s = max(self.frozen_until_s, self.world.now_s + event.seconds)
        self.is_sending_unfenced = name in COMMANDS and not self.world.site.plugin
        self.sleep(CALL_S + (min(event.seconds, DEADLINE_S) if event is not None and kind == "slow" else 0.0))
        self.is_sending_unfenced = False
        if kind == "fail" or self.world.outage_until_s > self.world.now_s:
            raise BackendUnavailable("no connection")
        if event is not None and kind == "late":
            self.world.at(self.world.now_s + event.seconds, lambda: self._take_effect(work, Fuse(), *sent))
            raise BackendTimeout("no answer")
        answer = self._take_effect(work, self.fuse, *sent)
        if name == "observe":
            self.observed_s = self.world.now_s
        if event is not None and kind == "suspend in reading":
            self.frozen_until_s = max(self.frozen_until_s, self.world.now_s + event.seconds)
        self.sleep(CALL_S)
        if kind == "lose answer":
            raise BackendTimeout("no answer")
        return answer

    def _take_effect(self, work: Callable[[], T], fuse: Fuse, run: str, epoch: int) -> T:
        site = self.world.site
        site.fuse, site.sender, site.sender_run, site.sender_epoch = fuse, self, run, epoch
        try:
            return work()
        finally:
            site.fuse, site.sender = Fuse(), None


class World:
    """The cluster, the hosts, and the events of one history."""

    def __init__(self, history: SeveralBridgesHistory, folder: Path) -> None:
        self.history = history
        self.now_s = 0.0
        self.outage_until_s = 0.0
        self.cut_until_s = 0.0
        self.is_ended = False
        self.failure: BaseException | None = None
        self.control = threading.Semaphore(0)
        self.counts: Counter[str] = Counter()
        self.site = SharedSite(history.plugin)
        self.takeovers_s: list[float] = []
        """Seconds without a leader before each takeover."""
        self.is_forced = any(event.kind in ("take over", "delete lease") for event in history.events)
        """Whether a bridge may lose its lease before it expires."""
        self._led_s = self._led_well_since_s = self._worked_s = 0.0
        self._held_since_s: dict[int, float] = {}
        self._leader = ""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.hosts = [BridgeHost(self, number, folder / str(number)) for number in range(history.hosts)]

    # time -----------------------------------------------------------------------------------------------------

    def at(self, at_s: float, do: Callable[[], None]) -> None:
        """Call `do` at a time."""
        heapq.heappush(self._agenda, (at_s, next(self._numbers), do))

    def wake_at(self, at_s: float, host: BridgeHost) -> None:
        """Resume a host's thread at a time, unless something else has resumed it before."""
        wake = host.wake
        self.at(at_s, lambda: self._resume(host, wake))

    def _resume(self, host: BridgeHost, wake: int) -> None:
        if host.wake != wake:
            return
        hung_until_s = max(host.frozen_until_s, host.hung_until_s)
        if self.now_s < hung_until_s and not host.is_killed and not host.is_sending_unfenced:
            self.at(hung_until_s, lambda: self._resume(host, wake))
            return
        host.go.release()
        self.control.acquire()
        if self.failure is not None:
            raise self.failure

    def _tick(self) -> None:
        self.site.advance(1)
        self._look()
        self.at(self.now_s + 1.0, self._tick)

    # the history ----------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Play the history, a calm period, and the release of all jobs."""
        for number, (at_s, units, run_s) in enumerate(self.history.jobs, start=1):
            self.at(at_s, partial(self._submit, number, units, run_s))
        for event in self.history.events:
            self.at(event.at_s, partial(self._happen, event))
        self.at(1.0, self._tick)
        for host in self.hosts:
            host.thread.start()
            self.wake_at(0.3 * host.number, host)
        try:
            self._run_until(EVENTS_S)
            self._run_until(EVENTS_S + CALM_S, until_idle=True)
            self.site.wrongs += judge.at_the_end(self.site)
            for number in range(3):  # jobs that are held when all bridges die
                self._submit(100 + number, 8, 1000)
            self._run_until(self.now_s + 3)
        finally:
            self._end()
        if self.site.claims > self.now_s:
            self.site.wrongs.append(f"{self.site.claims} calls for the lease in {self.now_s:.0f} s")
        self._release_all()

    def _run_until(self, end_s: float, until_idle: bool = False) -> None:
        while self._agenda and self._agenda[0][0] <= end_s:
            at_s, _, do = heapq.heappop(self._agenda)
            self.now_s = max(self.now_s, at_s)
            do()
            if until_idle and not judge.at_the_end(self.site):
                return
        self.now_s = max(self.now_s, end_s)

    def _end(self) -> None:
        self.is_ended = True
        for host in self.hosts:
            if host.thread.is_alive():
                host.go.release()
                self.control.acquire()

    def _release_all(self) -> None:
        """Release all jobs on each host, as `cpsched release-all` does after all bridges have died."""
        for host in self.hosts:
            ledger = Ledger(host.folder / "state.sqlite", durable=False)
            release_all_jobs(SiteBackend(self.site), ledger, "release-all")
            ledger.close()
        self.site.wrongs += judge.after_handing_all_back(self.site, frozenset(self.site.jobs))

    def _submit(self, id: int, units: int, run_s: int) -> None:
        self.site.arrive(a_job(id, 1, units, 10 * run_s, submit_s=self.site.shown_s), run_s)
        if id % 3 == 0:  # the submit plugin was switched off
            self.site.jobs[id].hold = Hold.NONE

    def _happen(self, event: Event) -> None:
        host = self.hosts[event.host % len(self.hosts)]
        if host.bridge is None:
            return
        self.counts[event.kind] += 1
        self.site.note(f"{event.kind} ({host.name}, {event.seconds} s)")
        if event.kind != "pause":  # a paused bridge releases jobs
            host.healthy_since_s = max(host.healthy_since_s, self.now_s + event.seconds + 2.0)
        if event.kind == "kill":
            host.fuse.left = event.number
            host.down_until_s = self.now_s + event.seconds
        elif event.kind == "kill now":
            host.is_killed, host.down_until_s = True, self.now_s + event.seconds
            self._resume(host, host.wake)
        elif event.kind == "stop":
            host.is_stopping, host.down_until_s = True, self.now_s + event.seconds
        elif event.kind == "suspend":
            host.frozen_until_s = max(host.frozen_until_s, self.now_s + event.seconds)
        elif event.kind == "hang":
            host.hung_until_s = max(host.hung_until_s, self.now_s + event.seconds)
        elif event.kind == "pause":
            host.bridge.pause.pause("an operator")
            self.at(self.now_s + event.seconds, host.bridge.pause.resume)
        elif event.kind in ("suspend in command", "late"):
            host.next_commands.append(event)
        elif event.kind in ("lose answer", "fail", "slow", "suspend in reading"):
            host.next_calls.append(event)
        elif event.kind == "outage":
            self.outage_until_s = self.now_s + event.seconds
            for each in self.hosts:
                each.healthy_since_s = max(each.healthy_since_s, self.outage_until_s + 2.0)
        elif event.kind == "disk":
            host.disk.trouble = "full"
            self.at(self.now_s + event.seconds, lambda: setattr(host.disk, "trouble", ""))
        elif event.kind == "cut":
            self.cut_until_s = self.now_s + event.seconds
        elif event.kind == "restart controller":
            self.outage_until_s = max(self.outage_until_s, self.now_s + 1.0)
        elif event.kind == "drain":
            self.site.drained = {event.number % 2}
            self.at(self.now_s + 2 * event.seconds, self.site.drained.clear)
        elif event.kind == "stall" and self.counts["stall"] <= MAX_STALLS:
            self.site.stalls += 1
        elif event.kind == "requeue":
            job = self.site.which(event.number, lambda job: job.running)
            if job is not None:
                self.site.put_back(job, held=False)
        elif event.kind == "clock":
            host.pace.set_by_s = event.seconds * (100 if event.number % 2 else -100)
        elif event.kind == "delete lease":
            self.site.claimed = None
        elif event.kind == "take over":
            (host.folder / "take-over").touch()

    # what must hold -------------------------------------------------------------------------------------------

    def record_cycle(self, host: BridgeHost, report: Any) -> None:
        """Record which process led, and when."""
        self.counts[report.role.mode] += 1
        self.site.note(f"{host.name}: {report.role.mode} {report.result}")
        lease = self.site.claimed
        if report.result != "ok" or (self._leader != host.name and report.role.mode == "control"):
            self._led_well_since_s = self.now_s
        if report.role.mode == "control" and lease is not None and lease.run == host.run:
            if self._leader and self._leader != host.name:
                self.takeovers_s.append(self.now_s - self._led_s)
            self._leader, self._led_s = host.name, self.now_s
            self._worked_s = self.now_s

    def _look(self) -> None:
        """Check that a job that waits for a bridge has a living leader, and that no pin is left."""
        if self.now_s - self._worked_s > 3.0:
            self._led_well_since_s = self.now_s
        held = [id for id, job in self.site.jobs.items() if job.pending and job.held_by in OURS]
        self._held_since_s = {id: self._held_since_s.get(id, self.now_s) for id in held}
        lease = self.site.claimed
        if any(host.leads_and_runs(lease) for host in self.hosts):
            self._led_s = self.now_s
        unled_s = self.now_s - self._led_s
        for host in self.hosts:
            if host.bridge is None or not held:
                continue
            is_standby = lease is not None and (lease.run in FREE_RUNS or lease.standby == host.bridge_name)
            since_s = max(host.healthy_since_s, min(self._held_since_s.values()))
            waited_s = min(unled_s, self.now_s - since_s)
            if waited_s > UNLED_S + (0.0 if is_standby else LEASE_S):
                self.site.wrongs.append(f"{self.now_s}: jobs {held} wait for {host.name}, without a leader: {waited_s}")
                self._led_s = self.now_s
        pinned = judge.pinned_too_long(self.site, int(self._led_well_since_s), PINNED_S)
        self.site.wrongs += [f"{self.now_s}: {words}" for words in pinned]


def play(history: SeveralBridgesHistory) -> judge.Verdict:
    """Play a history in a temporary folder, in memory if possible."""
    with quiet_folder() as folder:
        world = World(history, folder)
        world.play()
    return judge.Verdict(world.site.wrongs, world.site.log, world.counts, world.takeovers_s)


def main() -> int:
    """Print the history of a seed. Return 1 if it goes wrong."""
    history = history_of(int(sys.argv[1]))
    verdict = play(history)
    print("\n".join([str(replace(history, events=())), *map(str, history.events), *verdict.log]))
    print("\n".join(f"wrong: {words}" for words in verdict.wrongs))
    return 1 if verdict.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
