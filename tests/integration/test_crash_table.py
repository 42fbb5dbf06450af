"""Test each row of the crash table in docs/cycle.md: after the crash, the next cycle recovers as stated.

A crash is an exception that nothing in the bridge catches. A new bridge then opens the same ledger for the same site.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cpsched_bridge.adapters.mock.mock_backend import MockBackend
from cpsched_bridge.adapters.mock.mock_cluster import MockCluster
from cpsched_bridge.cycle.bridge_loop import Bridge
from cpsched_bridge.ports import Hold, Outcome, StartOrder, StartSettings
from cpsched_bridge.store.ledger import MANAGED_STATES, LedgerState
from cpsched_sim.traces.trace_jobs import TraceJob
from tests.bridges import a_bridge
from tests.builders import a_cluster, a_job

PAGE = (Path(__file__).parents[2] / "docs" / "cycle.md").read_text()
WORDS, TABLE = PAGE.split("\n## Crash states\n")[1].split("\n## Notes\n")[0].split("\n## Crash table\n")
FIRST, SECOND, BLOCKER = 1, 2, 9
TIMEOUT_S = 15


class Death(BaseException):
    """The crash of the bridge, which no handler catches."""


class SlowCluster(MockCluster):
    """A cluster that starts no pinned job within the duration of a test."""

    def _start_pinned_job(self, job_id):
        pass


@dataclass
class Mortal(MockBackend):
    """A mock backend that records each command, and in one of whose calls the bridge may crash."""

    site: MockCluster
    sent: list[tuple[str, int]] = field(default_factory=list)
    dies_in: str = ""
    done_before: int = 0
    """Number of jobs in the batch that are done before the crash."""
    meanwhile: Callable[[], object] = lambda: None

    starts_in_one_change: bool = True
    stays: bool = False
    """Whether jobs cannot be released while the bridge is in control."""
    refuses: int = 0
    """Number of batches of starts to refuse."""
    restores: dict[int, str] = field(default_factory=dict)
    """What each undone start restored, by job id."""

    def __post_init__(self):
        super().__init__(self.site)

    def observe(self, pinned=()):
        seen = super().observe(pinned)
        return replace(seen, pending=tuple(map(self._show, seen.pending)))

    def _show(self, pending):
        settings = StartSettings(restore=f"undo {pending.job.id}")
        return replace(pending, release_is_pointless=self.stays, start_settings=settings)

    def start(self, orders):
        if self.refuses:
            self.refuses -= 1
            return [Outcome(order.job.id, "refused", "odd") for order in orders]
        return self._do("start", super().start, orders)

    def hold(self, orders):
        return self._undo("hold", super().hold, orders)

    def release(self, orders):
        return self._undo("release", super().release, orders)

    def unpin(self, orders):
        return self._undo("unpin", super().unpin, orders)

    def _undo(self, kind, command, orders):
        self.restores |= {order.job_id: order.restore for order in orders if order.pinned}
        return self._do(kind, command, orders)

    def _do(self, kind, command, batch):
        if kind == self.dies_in:
            if self.done_before:
                command(batch[: self.done_before])
            self.meanwhile()
            raise Death
        self.sent += [(kind, order.job_id) for order in batch]
        return command(batch)


@dataclass
class World:
    """One bridge in control of a site, until it crashes."""

    state_dir: Path
    site: MockCluster
    apart: bool = False
    """Whether pin and release are two commands."""
    max_failures: int = 5
    """Maximum number of failed starts; with 1, jobs also cannot be released."""
    bridge: Bridge = field(init=False)

    def __post_init__(self):
        self.begin()

    def begin(self):
        """Start a new bridge with the existing site and ledger."""
        self.backend = Mortal(self.site, starts_in_one_change=not self.apart, stays=self.max_failures == 1)
        start = {"timeout_s": TIMEOUT_S, "max_failures": self.max_failures}
        self.bridge = a_bridge(self.state_dir, self.backend, start=start)

    def die(self, call):
        with pytest.raises(Death):
            getattr(self.bridge, call)()
        self.bridge.ledger.close()
        self.bridge.journal.close()
        self.begin()

    def die_writing(self, state, call="cycle", before=None):
        """Crash before the ledger records a transition to `state`, from the state `before` if given."""
        record = self.bridge.ledger.record

        def mortal(transitions, round_number=0, **how):
            batch = list(transitions)
            if any(each.entry.state is state and before in (None, each.before) for each in batch):
                raise Death
            record(batch, round_number, **how)

        self.bridge.ledger.record = mortal
        self.die(call)

    def die_sending(self, kind, call="cycle", done=0, meanwhile=lambda: None):
        """Crash in a command after `done` of its jobs are done."""
        self.backend.dies_in, self.backend.done_before, self.backend.meanwhile = kind, done, meanwhile
        self.die(call)

    def die_in_journal(self, name):
        def mortal(*arguments):
            raise Death

        setattr(self.bridge.journal, name, mortal)
        self.die("cycle")

    def later(self, seconds):
        self.site.advance(self.site.now_s + seconds)

    def in_ledger(self, job_id):
        entry = self.bridge.ledger.get(job_id)
        return str(entry.state) if entry else "-"

    def in_cluster(self, job_id):
        seen = self.site.observe()
        if any(running.job.id == job_id for running in seen.running):
            return "running"
        for pending in seen.pending:
            if pending.job.id == job_id:
                word = "released" if pending.hold is Hold.NONE else "held"
                return f"{word}, pinned" if pending.pinned else word
        return "-"


@pytest.fixture
def world(tmp_path):
    def build(plugin=True, room=True, kind=MockCluster, jobs=1, apart=False, max_failures=5):
        """Return a one-node site with waiting jobs; without `room`, another job runs there for 1000 s."""
        trace = [TraceJob(a_job(id, per_unit=2, walltime_s=2000, submit_s=1), 50) for id in (FIRST, SECOND)[:jobs]]
        if not room:
            trace.append(TraceJob(a_job(BLOCKER, per_unit=4, walltime_s=2000), 1000))
        site = kind(a_cluster(nodes=1, cores=4), trace, plugin)
        site.advance(0)
        site.start([StartOrder(pending.job, (("n0", 1),)) for pending in site.observe().pending])
        site.advance(1)
        return World(tmp_path, site, apart, max_failures)

    return build


# ------------------------------------------------------------------- the points of death, by the table's first column


def adopting(world):
    return world(plugin=False, room=False)


def starting(world):
    return world()


def starting_two(world):
    return world(jobs=2)


def starting_slowly(world):
    return world(kind=SlowCluster)


def started_slowly(world):
    w = starting_slowly(world)
    w.bridge.cycle()
    return w


def held_by_owner(world):
    w = started_slowly(world)
    w.site._holds[FIRST] = Hold.USER  # noqa: SLF001
    return w


def overdue(world):
    w = started_slowly(world)
    w.later(TIMEOUT_S + 1)
    return w


def refused(world):
    """Return a world in which the cluster refuses the first start."""
    w = world()
    w.backend.refuses = 1
    return w


def cannot_go_back(world):
    """Return a world with a job whose last permitted start was refused."""
    w = world(max_failures=1)
    w.backend.refuses = 1
    w.bridge.cycle()
    return w


def waiting(world, jobs=1):
    w = world(room=False, jobs=jobs)
    w.bridge.cycle()
    return w


def waiting_two(world):
    return waiting(world, jobs=2)


def adopted_and_starting_apart(world):
    w = world(plugin=False, room=False, apart=True)
    w.bridge.cycle()
    w.later(1000)
    return w


def pinned_and_not_released(w):
    """Crash between pin and release, which the mock itself performs in one change."""
    w.die_sending("start", meanwhile=lambda: w.site._pins.update({FIRST: (("n0", 1),)}))  # noqa: SLF001


def cancel_while_starting(w):
    w.die_sending("start", meanwhile=lambda: w.site.cancel(FIRST))


Point = tuple[Callable[..., World], Callable[[World], None], int]
POINTS: dict[str, Point] = {
    "before the intent to hold is written": (adopting, lambda w: w.die_writing(LedgerState.HOLDING), FIRST),
    "between that intent and the hold": (adopting, lambda w: w.die_sending("hold"), FIRST),
    "after the hold, before its answer is written": (adopting, lambda w: w.die_sending("hold", done=1), FIRST),
    "after the decision, before the intent to start is written": (
        starting, lambda w: w.die_writing(LedgerState.STARTING), FIRST),
    "between that intent and the start": (starting, lambda w: w.die_sending("start"), FIRST),
    "between pin and release, where these are two commands": (
        adopted_and_starting_apart, pinned_and_not_released, FIRST),
    "after the start, before its answer is written": (starting, lambda w: w.die_sending("start", done=1), FIRST),
    "after the start of a job that is slow to launch": (
        starting_slowly, lambda w: w.die_sending("start", done=1), FIRST),
    "between two parts of a batch: a job of the first part": (
        starting_two, lambda w: w.die_sending("start", done=1), FIRST),
    "between two parts of a batch: a job of the second part": (
        starting_two, lambda w: w.die_sending("start", done=1), SECOND),
    "after the cluster refuses the start, before its answer is written": (
        refused, lambda w: w.die_writing(LedgerState.HELD, before=LedgerState.STARTING), FIRST),
    "after the answer of a refused start is written": (
        refused, lambda w: w.die_in_journal("write_round"), FIRST),
    "between the intent and the answer, and its owner cancels the job": (starting, cancel_while_starting, FIRST),
    "before the intent to roll back is written": (overdue, lambda w: w.die_writing(LedgerState.ROLLING_BACK), FIRST),
    "between that intent and the hold that rolls back": (overdue, lambda w: w.die_sending("hold"), FIRST),
    "after the hold that rolls back, before its answer is written": (
        overdue, lambda w: w.die_sending("hold", done=1), FIRST),
    "before the intent to release is written": (waiting, lambda w: w.die_writing(LedgerState.RELEASING, "stop"), FIRST),
    "between that intent and the release": (waiting, lambda w: w.die_sending("release", "stop"), FIRST),
    "after the release, before its answer is written": (
        waiting, lambda w: w.die_sending("release", "stop", done=1), FIRST),
    "between two parts of a release: a job of the first part": (
        waiting_two, lambda w: w.die_sending("release", "stop", done=1), FIRST),
    "between two parts of a release: a job of the second part": (
        waiting_two, lambda w: w.die_sending("release", "stop", done=1), SECOND),
    "between the intent to release and the release, with a pin on the job": (
        started_slowly, lambda w: w.die_sending("release", "stop"), FIRST),
    "before the intent to keep the hold is written": (
        cannot_go_back, lambda w: w.die_writing(LedgerState.HOLDING), FIRST),
    "between that intent and the hold that keeps it": (cannot_go_back, lambda w: w.die_sending("hold"), FIRST),
    "after the hold that keeps it, before its answer is written": (
        cannot_go_back, lambda w: w.die_sending("hold", done=1), FIRST),
    "before that hold is written": (held_by_owner, lambda w: w.die_writing(LedgerState.FREE), FIRST),
    "between that and the unpin": (held_by_owner, lambda w: w.die_sending("unpin"), FIRST),
    "after the unpin, before its answer is written": (
        held_by_owner, lambda w: w.die_sending("unpin", done=1), FIRST),
    "before the round is written to the journal": (starting, lambda w: w.die_in_journal("write_round"), FIRST),
    "after the round, before its events are written to the journal": (
        starting, lambda w: w.die_in_journal("write_events"), FIRST),
}  # fmt: skip


def dead_at(point, world):
    """Return a world whose bridge has crashed at a point, and the job that the table row is about."""
    prepare, die, job_id = POINTS[point]
    w = prepare(world)
    die(w)
    return w, job_id


def rows():
    """Return the table's cells, without the headings between parts, which have only a first cell."""
    lines = [line for line in TABLE.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if any(row[1:])]


ROWS = rows()


def test_table_has_exactly_one_row_per_crash_point() -> None:
    assert [row[0] for row in ROWS] == list(POINTS)


def test_page_explains_every_state_of_table() -> None:
    assert [state for row in ROWS for state in row[1:3] + row[4:] if f"`{state}`" not in WORDS] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_next_cycle_recovers_as_documented(world, row) -> None:
    point, ledger, cluster, sends, ledger_then, cluster_then = row
    w, job_id = dead_at(point, world)
    assert (w.in_ledger(job_id), w.in_cluster(job_id)) == (ledger, cluster), "what the dead bridge left"
    assert w.bridge.cycle().result == "ok"
    sent = [kind for kind, id in w.backend.sent if id == job_id]
    assert sent == ([] if sends == "nothing" else [sends])
    assert (w.in_ledger(job_id), w.in_cluster(job_id)) == (ledger_then, cluster_then)


@pytest.mark.parametrize("done", [0, 1])
def test_next_bridge_can_undo_start(world, done) -> None:
    w = starting_slowly(world)
    w.die_sending("start", done=done)
    w.later(TIMEOUT_S + 1)
    w.bridge.cycle()
    assert w.backend.restores == {FIRST: f"undo {FIRST}"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_job_starts_once_after_crash(world, row) -> None:
    """If the cluster delays a launch forever, its own scheduler eventually starts the job."""
    w, job_id = dead_at(row[0], world)
    for at in range(200):
        if at == 5 and (holds := w.site._holds).get(job_id) is Hold.USER:  # noqa: SLF001
            holds[job_id] = Hold.NONE
        assert w.bridge.cycle().result == "ok"
        w.later(10)
    assert w.bridge.ledger.list_managed_job_ids() == [], list(w.bridge.ledger.list_entries(*MANAGED_STATES))
    assert w.site.pending_count == 0
    assert set(w.site.starts.values()) <= {1}
    assert not any(w.site.repeated.values())
    ran = {ended.job.id for ended in w.site.ended}
    assert ran == set(w.site.starts)
