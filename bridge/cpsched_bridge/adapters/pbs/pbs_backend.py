"""Implement the backend for a PBS server.

- PBS's scheduler ignores a closed queue (`started` is false). Jobs in a closed managed queue are held for the bridge.
  The bridge does not modify, mark or pin a job.
- A start is a single `qrun -H`. PBS does not check whether the job fits. The bridge therefore closes `left_queue` and
  reads PBS again immediately before it starts jobs.
- To adopt jobs, the bridge closes their queue. To pause, it opens the queue.
- The bridge moves jobs that it releases or cannot model from a closed queue to `left_queue`.
- In advise mode, the queues are open, and the bridge sets the boosts of waiting jobs. See `pbs_boosts`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from typing_extensions import override

from cpsched.feasibility import amounts_by_node
from cpsched.model import EndedJob
from cpsched_bridge.adapters.pbs.pbs_boosts import PbsBoostAccess
from cpsched_bridge.adapters.pbs.pbs_doctor import PbsDoctorContext, check_for_unusable_objects, run_pbs_doctor_checks
from cpsched_bridge.adapters.pbs.pbs_objects import (
    LEASE_RESOURCE,
    PbsJob,
    PbsQueue,
    PbsRecords,
    PbsServer,
    select_managed_queues,
)
from cpsched_bridge.adapters.pbs.translation import pbs_jobs, pbs_observation
from cpsched_bridge.adapters.pbs.translation.pbs_observation import (
    PbsTranslator,
    TranslatedPbsReading,
    is_job_queued_in_open_queue,
)
from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.adapters.pbs.transport.pbs_reader import PbsStateReader
from cpsched_bridge.adapters.pbs.unmanaged_queue_gate import UnmanagedQueueGate
from cpsched_bridge.errors import BackendError, BackendTimeout, BackendUnavailable, CommandRefused
from cpsched_bridge.ports import (
    Backend,
    BoostCommand,
    Hold,
    Lease,
    Observation,
    Outcome,
    QueueGate,
    QueueRank,
    ReadinessCheck,
    StartOrder,
    SupportsBoost,
    UndoOrder,
)
from cpsched_bridge.telemetry.reason_kinds import format_reason

UNKNOWN_JOB = "is unknown to PBS"
MAX_READING_AGE_S = 2.0
"""Maximum age of a reading by which jobs are held or released. PBS itself refuses to move a job that has started."""
MAX_PARALLEL_COMMANDS = 8
"""Maximum number of programs that start jobs in parallel. PBS's server processes one request at a time."""


class PbsBackend(Backend, SupportsBoost, QueueGate):
    """A backend that observes and controls one PBS server.

    `queues` are the managed queues. Changes carry no epoch, because PBS has no hook that could refuse an earlier one.
    """

    scheduler_interval_s = 60.0  # PBS also schedules at each event, long before `scheduler_iteration` (600 s) ends

    def __init__(
        self,
        programs: PbsProgramRunner,
        queues: Sequence[str],
        left_queue: str = "",
        starting_s: float = 20.0,
        history_deadline_s: float = 60.0,
        reader: PbsStateReader | None = None,
        commands: PbsCommands | None = None,
    ) -> None:
        self._programs = programs
        self._reader = reader or PbsStateReader(programs)
        self._commands = commands or PbsCommands(programs)
        self._queues = tuple(queues)
        self._left_queue = UnmanagedQueueGate(self._reader, self._commands, left_queue)
        self._starting_s = starting_s
        self._history_s = history_deadline_s
        self._translator = PbsTranslator(self._queues)
        self._boost_access = PbsBoostAccess(self._reader, self._commands, self._queues, starting_s, programs.within_s)
        self._controlled_queues: set[str] = set()
        """Queues that this process has closed, or in which it has started jobs, since it last opened them."""
        self._opened_by_others: set[str] = set()
        """Queues in `_controlled_queues` that another actor has opened."""
        self._closed: set[str] | None = None
        """Managed queues that were closed at the last reading, or None before the first reading."""
        self._observed: PbsRecords | None = None
        """The last reading, until this process opens or closes a queue."""
        self._observed_s = 0.0
        """Monotonic time of the last reading."""
        self._unconfirmed_queues: set[str] = set()
        """Queues whose open command has timed out since the last reading."""

    @override
    def observe(self, pinned: Collection[int] = ()) -> Observation:
        """Return an observation. `pinned` is ignored because PBS has no pins."""
        self._unconfirmed_queues = set()
        seen = self._observed = self._reader.read()
        self._observed_s = time.monotonic()
        self._left_queue.record_reading(seen.queues)
        opened = self._track_queues_opened_by_others(select_managed_queues(seen.queues, self._queues))
        found = self._translator.observe(seen, self._interpret_reading(seen))
        if missing := [name for name in self._queues if name not in seen.queues]:
            opened = [*opened, f"execution queue {missing[0]} does not exist"]
        return dataclasses.replace(found, notes=(*found.notes, *opened)) if opened else found

    def _interpret_reading(self, seen: PbsRecords) -> TranslatedPbsReading:
        try:
            return self._translator.interpret_reading(seen, self._opened_by_others)
        except ValueError as error:
            raise BackendUnavailable(f"pbsnodes: {error}") from error

    def _track_queues_opened_by_others(self, queues: Mapping[str, PbsQueue]) -> list[str]:
        """Record which queues were opened or closed, and return messages on changes.

        The messages concern queues that another actor opened, and their closure.
        """
        messages = []
        self._closed = {name for name, queue in queues.items() if not queue.is_started}
        for name, queue in queues.items():
            if not queue.is_started:
                if name in self._opened_by_others:
                    messages.append(f"queue {name} is closed again: the bridge schedules its jobs")
                self._opened_by_others.discard(name)
            elif name in self._controlled_queues and name not in self._opened_by_others:
                self._opened_by_others.add(name)
                messages.append(f"queue {name} was opened by another actor: PBS schedules its jobs until it is closed")
        return messages

    @override
    def read_history(self) -> Sequence[EndedJob]:
        """Return the ended jobs in PBS's job history.

        Return no jobs if the server has no history or does not return it.
        """
        reading = self._interpret_reading(self._reader.read())
        try:
            return pbs_observation.translate_ended_jobs(
                self._reader.read_history(self._history_s), reading.context.machine
            )
        except BackendError:
            return ()

    # ------------------------------------------------------------------------------------------------- commands

    @override
    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        """Check each order against a new reading, then start the job.

        Return the outcomes. If PBS's scheduler may start jobs in other queues in the meantime, the bridge reads PBS
        before each start.
        """
        until_s = time.monotonic() + self._starting_s
        with self._left_queue.keep_closed(time.monotonic() + self._starting_s / 2) as close_error:
            if close_error:
                return [_make_not_sent_outcome(order.job_id, close_error) for order in orders]
            return self._execute_start_orders(orders, until_s)

    def _execute_start_orders(self, orders: Sequence[StartOrder], until_s: float) -> list[Outcome]:
        """Start the jobs in batches. If PBS may start jobs meanwhile, each job has a batch and a reading of its own."""
        reading = self._read_before_start()
        free = reading.context.free.copy()
        outcomes: list[Outcome] = []
        lost = ""
        while len(outcomes) < len(orders):
            if lost or time.monotonic() >= until_s:
                why = lost or "the time limit for starts was reached"
                outcomes += [_make_not_sent_outcome(order.job_id, why) for order in orders[len(outcomes) :]]
                break

            if outcomes and reading.can_pbs_start_jobs:
                reading = self._read_before_start()
                free = reading.context.free.copy()
            size = 1 if reading.can_pbs_start_jobs else MAX_PARALLEL_COMMANDS
            batch = orders[len(outcomes) : len(outcomes) + size]
            batch_outcomes, lost = self._start_batch(batch, reading, free, until_s)
            outcomes += [batch_outcomes[order.job_id] for order in batch]
        return outcomes

    def _read_before_start(self) -> TranslatedPbsReading:
        """Read PBS while the queue of unmanaged jobs is closed."""
        before = self._observed
        if before is None:
            return self._interpret_reading(self._reader.read())
        others = {name: queue for name, queue in before.queues.items() if name != self._left_queue.name}
        is_idle = not is_job_queued_in_open_queue(dataclasses.replace(before, queues=others))
        return self._interpret_reading(self._reader.read_again(before, is_idle))

    def _start_batch(
        self, batch: Sequence[StartOrder], reading: TranslatedPbsReading, free: np.ndarray, until_s: float
    ) -> tuple[dict[int, Outcome], str]:
        """Check the orders one by one, then start their jobs in parallel. Subtract their amounts from `free`.

        Return the outcomes by job number, and the message of a timeout, or "".
        """
        outcomes: dict[int, Outcome] = {}
        starts: dict[str, StartOrder] = {}
        lost = ""
        for order in batch:
            number = order.job_id
            if why := _find_start_refusal_reason(order, reading):
                outcomes[number] = Outcome(number, "refused", why)
            elif why := lost or _try_allocate_start_order(order, reading, free):
                outcomes[number] = _make_not_sent_outcome(number, why)
            elif error := self._set_fitted_walltime(number, reading, until_s):
                outcomes[number] = _make_command_outcome(number, error)
                if isinstance(error, BackendTimeout):
                    lost = str(error)
                    outcomes[number] = _make_not_sent_outcome(number, lost)
            else:
                self._controlled_queues.add(order.job.queue)
                starts[reading.names[number]] = order

        placements = {
            name: reading.waiting.asked[order.job_id].format_exec_vnode(order.nodes) for name, order in starts.items()
        }
        for name, error in self._commands.run_jobs(placements, self._compute_command_timeout_s(until_s)).items():
            job = starts[name].job
            outcomes[job.id] = _make_command_outcome(job.id, error)
            if error is None:
                self._translator.record_start(job, reading.context.now_s)
            elif isinstance(error, BackendTimeout):
                lost = lost or str(error)
        return outcomes, lost

    def _set_fitted_walltime(self, number: int, reading: TranslatedPbsReading, until_s: float) -> BackendError | None:
        """Set the walltime of a shrink-to-fit job before its start. Return the error, or None."""
        if number not in reading.waiting.fitted:
            return None
        walltime_s, within_s = reading.waiting.fitted[number], self._compute_command_timeout_s(until_s)
        try:
            self._commands.set_walltime(reading.names[number], walltime_s, within_s)
        except BackendError as error:
            return error
        return None

    def _compute_command_timeout_s(self, until_s: float) -> float:
        return min(self._programs.within_s, max(1.0, until_s - time.monotonic()))

    @override
    def hold(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Close the queues of these jobs to PBS's scheduler. Return the outcomes."""
        jobs, queues = self._read_jobs_and_queues()
        closed: dict[str, Outcome | None] = {}

        def hold_job(number: int, name: str, job: PbsJob) -> Outcome:
            queue = queues.get(job.queue)
            if queue is None:
                return Outcome(number, "refused", "its queue is not managed by the bridge")
            if job.state not in ("Q", "W") or job.hold_types != "n":
                why = f"has job_state={job.state} and Hold_Types={job.hold_types}"
                return Outcome(number, "refused", why)
            if queue.name in self._opened_by_others:
                return Outcome(number, "refused", f"queue {queue.name} was opened by another actor")
            if queue.is_started and queue.name not in closed:
                closed[queue.name] = self._close_queue(queue.name)
            failure = closed.get(queue.name)
            if failure is not None:
                return dataclasses.replace(failure, job_id=number)
            self._controlled_queues.add(queue.name)
            return Outcome(number, "done")

        return _run_for_each_known_job(orders, jobs, hold_job)

    @override
    def release(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Move each job in a closed queue to `left_queue`. Return the outcomes.

        If the command that opens a queue timed out, its jobs stay there, because the command may have released them.
        """
        jobs, queues = self._read_jobs_and_queues()
        moved: dict[str, Outcome] = {}

        def release_job(number: int, name: str, job: PbsJob) -> Outcome:
            queue = queues.get(job.queue)
            if queue is None or queue.is_started:
                return Outcome(number, "done")
            if queue.name in self._unconfirmed_queues:
                return Outcome(number, "unknown", f"queue {queue.name} may still be closed")
            if job.state not in ("", "Q", "H", "W"):
                return Outcome(number, "refused", f"has job_state={job.state}")
            whole = pbs_jobs.find_parent_array_name(name) or name
            if whole not in moved:
                moved[whole] = self._move_to_unmanaged_queue(whole)
            return dataclasses.replace(moved[whole], job_id=number)

        return _run_for_each_known_job(orders, jobs, release_job)

    @override
    def unpin(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        """Return success for each job, because PBS has no pins."""
        return [Outcome(order.job_id, "done") for order in orders]

    @override
    def reopen_queues(self) -> Sequence[str]:
        """Open the closed managed queues. Return one line per problem."""
        problems = [problem] if (problem := self._left_queue.reopen()) else []
        if self._closed is not None and not self._closed:
            return problems
        server: PbsServer | None = None
        self._observed = None
        queues = self._reader.read_queues()
        for name in self._queues:
            queue = queues.get(name)
            if queue is None or not (queue.unreadable or queue.is_execution_queue):
                continue
            if queue.unreadable or not queue.is_started:
                try:
                    server = self._commands.open_queue(name)
                except BackendError as error:
                    problems.append(f"queue {name} may still be closed: {error}")
                    if isinstance(error, BackendTimeout):
                        self._unconfirmed_queues.add(name)
                    continue
            self._controlled_queues.discard(name)
            self._opened_by_others.discard(name)
            if self._closed is not None:
                self._closed.discard(name)
        if server is not None:
            self._left_queue.trigger_scheduling(server)
        return problems

    def _read_jobs_and_queues(self) -> tuple[Mapping[str, PbsJob], dict[str, PbsQueue]]:
        """Return the jobs and the managed queues, from the last reading if it is recent."""
        seen = self._observed
        if seen is not None and time.monotonic() - self._observed_s <= MAX_READING_AGE_S:
            return seen.jobs, select_managed_queues(seen.queues, self._queues)
        jobs, queues = self._reader.read_jobs_and_queues()
        return jobs, select_managed_queues(queues, self._queues)

    def _close_queue(self, queue: str) -> Outcome | None:
        """Close a queue. Return None on success, otherwise the outcome."""
        self._observed = None
        try:
            self._commands.close_queue(queue)
        except BackendError as error:
            return _make_command_outcome(0, error)
        return None

    def _move_to_unmanaged_queue(self, name: str) -> Outcome:
        if not self._left_queue.name:
            return Outcome(0, "refused", "its queue is closed, and options.left_queue is not set")
        try:
            self._commands.move(name, self._left_queue.name)
        except BackendError as error:
            return _make_command_outcome(0, error)
        return Outcome(0, "done")

    # ------------------------------------------------------------------------------------------------- boosts

    @override
    def read_ranks(self) -> Sequence[QueueRank]:
        return self._boost_access.read_ranks()

    @override
    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        return self._boost_access.set_job_boosts(commands)

    # --------------------------------------------------------------------------------------- lease and checks

    @override
    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        """Write the lease to a custom resource. Return whether the bridge holds it.

        Only managers may write this resource of the server. PBS has no compare-and-set, so the bridge reads the
        resource before and after writing. If two bridges write at the same moment, the last writer holds the lease.
        """
        if pbs_observation.find_lease(self._reader.read_server()) != expected:
            return False
        self._left_queue.reopen()
        try:
            self._commands.write_lease(LEASE_RESOURCE, pbs_observation.encode_lease(lease))
        except BackendTimeout as error:
            raise BackendUnavailable(str(error)) from error
        return pbs_observation.find_lease(self._reader.read_server()) == lease

    @override
    def run_checks(self) -> Sequence[ReadinessCheck]:
        missing = self._programs.list_missing_programs()
        if missing:
            remedy = "install PBS's client commands on this host, or set options.bin to their folder"
            return [ReadinessCheck("programs", False, f"not found: {', '.join(missing)}", remedy)]
        try:
            seen = dataclasses.replace(self._reader.read(), schedulers=self._reader.read_schedulers())
        except CommandRefused as error:
            return [ReadinessCheck("server", False, str(error), "allow this account to query PBS")]
        except BackendError as error:
            remedy = "start PBS's server, or correct pbs.conf on this host"
            return [ReadinessCheck("server", False, str(error), remedy, may_pass_later=True)]
        context = PbsDoctorContext.for_this_process(self._queues, self._left_queue.name)
        try:
            reading = self._interpret_reading(seen)
        except BackendError as error:
            return [ReadinessCheck("vnodes", False, str(error), "compare with the output of `pbsnodes -av`")]
        return [
            *run_pbs_doctor_checks(dataclasses.replace(seen, vnodes=reading.vnodes), context),
            check_for_unusable_objects(reading.unusable),
        ]

    @override
    def close(self) -> None:
        pass


def _make_not_sent_outcome(job_id: int, why: str) -> Outcome:
    return Outcome.not_sent(job_id, f"not sent: {why}")


def _make_command_outcome(job_id: int, error: BackendError | None) -> Outcome:
    if error is None:
        return Outcome(job_id, "done")
    return Outcome(job_id, "unknown" if isinstance(error, BackendTimeout) else "refused", str(error))


def _run_for_each_known_job(
    orders: Sequence[UndoOrder], jobs: Mapping[str, PbsJob], act: Callable[[int, str, PbsJob], Outcome]
) -> list[Outcome]:
    """Apply `act` to each job that PBS shows, and return the outcomes."""
    names = {number: name for name, number in pbs_jobs.assign_job_numbers(jobs).items()}
    outcomes = []
    for number in (order.job_id for order in orders):
        name = names.get(number)
        outcomes.append(Outcome(number, "refused", UNKNOWN_JOB) if name is None else act(number, name, jobs[name]))
    return outcomes


def _find_start_refusal_reason(order: StartOrder, reading: TranslatedPbsReading) -> str:
    """Return why the reading forbids this start, or "" if it permits the start."""
    number = order.job_id
    now = next((each for each in reading.waiting.pending if each.job.id == number), None)
    if now is None:
        reason = next((each.reason for each in reading.waiting.unmanaged if each.job_id == number), None)
        return format_reason(reason) if reason else ("has started or ended" if number in reading.names else UNKNOWN_JOB)
    if now.hold is Hold.NONE:
        return "its queue is open to PBS's own scheduler, or it has started"
    if now.hold is not Hold.PLUGIN or now.job.ineligible is not None:
        return format_reason(now.job.ineligible) if now.job.ineligible is not None else "is held"
    chosen = reading.waiting.fitted.get(number)  # a reservation may have shortened it
    same_time = now.job.walltime_s == order.job.walltime_s or (chosen is not None and chosen < order.job.walltime_s)
    same = same_time and now.job.queue == order.job.queue
    if not (same and reading.waiting.asked[number].matches_request(order.job.request, reading.context.machine)):
        return "its request has changed since the decision"
    return ""


def _try_allocate_start_order(order: StartOrder, reading: TranslatedPbsReading, free: np.ndarray) -> str:
    """Subtract the order's amounts from `free`.

    Return why that is impossible, or "" on success.
    """
    machine, request = reading.context.machine, order.job.request
    odd = [name for name, _ in order.nodes if name not in machine.index]
    if odd:
        return f"vnode {odd[0]} does not exist"
    placement = tuple(sorted((machine.index[name], units) for name, units in order.nodes))
    if sum(units for _, units in placement) != request.units or (
        request.distinct and any(units > 1 for _, units in placement)
    ):
        return "its placement does not match its request"
    members = machine.rows[request.node_set]
    used = amounts_by_node(request, placement, machine.capacity)
    for node, amounts in used.items():
        if not members[node]:
            return f"may not run on vnode {machine.names[node]}"
        if (free[node] < amounts).any() or (request.exclusive and (free[node] < machine.capacity[node]).any()):
            return f"vnode {machine.names[node]} no longer has enough free resources"
    for node, amounts in used.items():
        free[node] -= amounts
    return ""
