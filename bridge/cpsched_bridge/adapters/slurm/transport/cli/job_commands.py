"""Start, hold, release, unpin and preempt batches of jobs.

`ScontrolJobActions` performs the actions on each job. Each job is read again just before it is changed. See
`job_command_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.transport.cli.scontrol_commands import ScontrolJobActions
from cpsched_bridge.adapters.slurm.transport.programs import job_command_rules
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import ControllerCallError, JobCommandRefused
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import run_scancel
from cpsched_bridge.ports import Outcome, StartOrder, UndoOrder, Victim

COMMANDS_PER_READING = 20
"""Number of commands per reading of the jobs, except that releasing many jobs takes one command and one reading."""

Order = TypeVar("Order", StartOrder, UndoOrder, Victim)


class SlurmOrderExecutor:
    """An executor of the orders that `SlurmCliTransport.send` describes.

    Methods return one outcome per order, and raise `ControllerCallError` if reading fails before a command is sent.
    """

    def __init__(self, actions: ScontrolJobActions) -> None:
        self._actions = actions
        self._guarded = False

    def start(self, orders: Sequence[StartOrder]) -> list[Outcome]:
        """Pin and release each job that is still pending and held."""
        numbers = self._find_controller_job_numbers(orders, separate=True)
        return self._run_for_each_job(self._start_job, orders, numbers)

    def _start_job(self, job: SlurmJob, order: StartOrder) -> None:
        job_command_rules.require_held(job, self._guarded)
        self._actions.start(job, order)

    def hold(self, orders: Sequence[UndoOrder]) -> list[Outcome]:
        """Hold each job that is pending, then clear its pin."""
        numbers = self._find_controller_job_numbers(orders, separate=False)
        return self._clear_pins_of_successful(orders, numbers, self._run_for_each_job(self._hold_job, orders, numbers))

    def _hold_job(self, job: SlurmJob, order: UndoOrder) -> None:
        job_command_rules.format_unpin_settings(order)
        job_command_rules.require_not_held_by_others(job, self._guarded)
        if job_command_rules.is_unheld(job):
            self._actions.hold(job)
        elif not order.pinned and job_command_rules.is_held_by_other_actor(job, self._guarded):
            raise JobCommandRefused("is held by an administrator", "held_by_administrator")

    def release(self, orders: Sequence[UndoOrder]) -> list[Outcome]:
        """Clear pins, then release the jobs.

        A pinned job would wait for its nodes, which may be occupied.
        """
        numbers = self._find_controller_job_numbers(orders, separate=False)
        outcomes = [Outcome(order.job_id, "done") for order in orders]
        pinned = [at for at, order in enumerate(orders) if order.pinned]
        self._replace_outcomes(outcomes, pinned, self._hold_and_clear_pins([orders[at] for at in pinned], numbers))
        ready = [at for at, each in enumerate(outcomes) if each.result == "done"]
        try:
            released = self._release_held([orders[at] for at in ready], numbers)
        except ControllerCallError as error:
            if not pinned:
                raise
            released = [Outcome(orders[at].job_id, "unknown", f"not released: {error}") for at in ready]
        return self._replace_outcomes(outcomes, ready, released)

    def _hold_and_clear_pins(self, orders: Sequence[UndoOrder], numbers: Mapping[int, int]) -> list[Outcome]:
        return self._clear_pins_of_successful(
            orders, numbers, self._run_for_each_job(self._hold_during_unpin, orders, numbers)
        )

    def _release_held(self, orders: Sequence[UndoOrder], numbers: Mapping[int, int]) -> list[Outcome]:
        """Release the held jobs that the bridge may release, with one command if possible."""
        ready: dict[int, SlurmJob] = {}

        def collect_releasable(job: SlurmJob, order: UndoOrder) -> None:
            if order.pinned:
                job_command_rules.require_pending(job)
            else:
                job_command_rules.require_not_held_by_others(job, self._guarded)
            if job_command_rules.may_be_released(job):
                ready[order.job_id] = job

        outcomes = self._run_for_each_job(collect_releasable, orders, numbers, len(orders))
        wanted = [at for at, order in enumerate(orders) if order.job_id in ready]
        return self._replace_outcomes(outcomes, wanted, self._actions.release(ready))

    @staticmethod
    def _replace_outcomes(outcomes: list[Outcome], at: Sequence[int], by: Sequence[Outcome]) -> list[Outcome]:
        for place, outcome in zip(at, by, strict=True):
            outcomes[place] = outcome
        return outcomes

    def _hold_during_unpin(self, job: SlurmJob, order: UndoOrder) -> None:
        """Hold a pinned job so that it does not start while its pin is being cleared."""
        job_command_rules.format_unpin_settings(order)
        job_command_rules.require_not_held_by_others(job, self._guarded)
        if order.pinned and job_command_rules.is_unheld(job):
            self._actions.hold(job)

    def unpin(self, orders: Sequence[UndoOrder]) -> list[Outcome]:
        """Clear the pin of each held pending job, and keep the hold of any actor."""
        numbers = self._find_controller_job_numbers(orders, separate=False)
        return self._clear_pins_of_successful(
            orders, numbers, self._run_for_each_job(self._require_held_for_unpin, orders, numbers)
        )

    def preempt(self, victims: Sequence[Victim]) -> list[Outcome]:
        """Requeue or cancel each victim that is still in the same run.

        If a job is not stopped, stop no further jobs, because stopping other jobs might not enable a start.
        """
        numbers, outcomes = self._find_controller_job_numbers(victims, separate=False), list[Outcome]()
        for victim in victims:
            if outcomes and outcomes[-1].result != "done":
                outcomes.append(Outcome.not_sent(victim.job_id, "not sent: another job was not stopped"))
                continue
            try:
                outcomes += self._run_for_each_job(self._preempt_job, [victim], numbers)
            except ControllerCallError as error:
                if not outcomes:
                    raise
                outcomes.append(_make_unread_outcome(victim, error))
        return outcomes

    def _preempt_job(self, job: SlurmJob, victim: Victim) -> None:
        job_command_rules.require_unchanged_victim(job, victim)
        selector = slurm_job_ids.format_job_id(victim.job_id)
        if victim.mode == "requeue":
            self._actions.requeue(selector)
        else:
            run_scancel(selector)

    def _require_held_for_unpin(self, job: SlurmJob, order: UndoOrder) -> None:
        job_command_rules.format_unpin_settings(order)
        job_command_rules.require_pending(job)
        if job_command_rules.is_unheld(job):
            raise JobCommandRefused("is not held")

    def _run_for_each_job(
        self,
        act: Callable[[SlurmJob, Order], None],
        orders: Sequence[Order],
        numbers: Mapping[int, int],
        at_once: int = COMMANDS_PER_READING,
    ) -> list[Outcome]:
        """Run `act` for each job and return the outcomes.

        In a large batch, `at_once` jobs are read at a time.
        """
        outcomes: list[Outcome] = []
        together = len(orders) >= self._actions.alone_below
        looked: dict[int, SlurmJob] = {}
        for at, order in enumerate(orders):
            if together and at % at_once == 0:
                part = {numbers[each.job_id] for each in orders[at : at + at_once] if each.job_id in numbers}
                try:
                    looked = {job.id: job for job in self._actions.read_jobs(part)} if part else {}
                except ControllerCallError as error:
                    if not outcomes:
                        raise
                    return outcomes + [_make_unread_outcome(each, error) for each in orders[at:]]
            outcomes.append(self._run_for_job(act, numbers.get(order.job_id), order, looked))
        return outcomes

    def _run_for_job(
        self,
        act: Callable[[SlurmJob, Order], None],
        number: int | None,
        order: Order,
        looked: Mapping[int, SlurmJob],
    ) -> Outcome:
        if number is None:
            return Outcome(order.job_id, "refused", "is unknown to slurmctld")
        try:
            job = looked.get(number) or self._actions.read_job(number)
            act(job, order)
        except JobCommandRefused as error:
            return Outcome(order.job_id, "refused", str(error), error.code)
        except ControllerCallError as error:
            return Outcome(order.job_id, "unknown" if error.lost else "refused", str(error), error.code)
        except Exception as error:
            # An unforeseen error for one job must not affect the rest of the batch.
            return Outcome(order.job_id, "refused", f"{type(error).__name__}: {error}")
        return Outcome(order.job_id, "done")

    def _clear_pins_of_successful(
        self, orders: Sequence[UndoOrder], numbers: Mapping[int, int], outcomes: list[Outcome]
    ) -> list[Outcome]:
        """Return `outcomes` after clearing the pins of successful orders.

        Slurm reports success even if the job to hold has just started, so each job is read again first. An array task
        is addressed by its index: a change under the array's own number would also apply to its running tasks, and
        Slurm would reject it.
        """
        wanted = [at for at, order in enumerate(orders) if order.pinned and outcomes[at].result == "done"]
        if not wanted:
            return outcomes
        try:
            looked = self._actions.read_jobs({numbers[orders[at].job_id] for at in wanted})
        except ControllerCallError as error:
            for at in wanted:
                outcomes[at] = Outcome(orders[at].job_id, "unknown", f"held, but its pin was not cleared: {error}")
            return outcomes
        held = {job.id for job in looked if job.state == slurm_states.PENDING and job.priority == 0}
        ready = [at for at in wanted if numbers[orders[at].job_id] in held]
        commands = [_format_unpin_command(orders[at]) for at in ready]
        complaints = dict(zip(ready, self._actions.run_scontrol(commands), strict=True))
        for at in wanted:
            job_id = orders[at].job_id
            if at not in complaints:
                outcomes[at] = Outcome(job_id, "refused", "is no longer pending and held")
            elif complaints[at]:
                outcomes[at] = Outcome(job_id, "unknown", f"held, but its pin was not cleared: {complaints[at]}")
        return outcomes

    def _find_controller_job_numbers(self, orders: Sequence[Order], *, separate: bool) -> dict[int, int]:
        self._guarded = self._actions.has_submit_plugin()
        wanted = [order.job_id for order in orders]
        return job_command_rules.find_controller_job_numbers(
            wanted, self._actions.read_jobs, self._actions.run_scontrol, separate=separate
        )


def _make_unread_outcome(order: Order, error: ControllerCallError) -> Outcome:
    return Outcome(order.job_id, "unknown", f"not attempted: its state could not be read: {error}")


def _format_unpin_command(order: UndoOrder) -> str:
    label = slurm_job_ids.format_job_id(order.job_id)
    return f"update JobId={label} {job_command_rules.format_unpin_settings(order)}"
