"""Implement the backend for a Slurm cluster with a transport and a translator."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import structlog
from typing_extensions import override

from cpsched.model import EndedJob
from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched.slurm_text.site_policy import SitePolicyReading
from cpsched_bridge.adapters.shared.lease_text import format_lease
from cpsched_bridge.adapters.slurm.background_queries import (
    BackgroundCommandQuery,
    ControllerLoadMonitor,
    PeriodicSitePolicyReader,
)
from cpsched_bridge.adapters.slurm.node_checks import run_node_checks
from cpsched_bridge.adapters.slurm.policy import sprio_comparison
from cpsched_bridge.adapters.slurm.policy.preemptors import PreemptorsLeftToSlurm
from cpsched_bridge.adapters.slurm.policy.priority_ranking import PriorityRanker
from cpsched_bridge.adapters.slurm.slurm_boosts import SiteFactorBoostAccess, compute_start_boosts
from cpsched_bridge.adapters.slurm.slurm_doctor import (
    check_for_unusable_objects,
    run_policy_checks,
    run_slurm_doctor_checks,
)
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords, name_users
from cpsched_bridge.adapters.slurm.translation import slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.translation.slurm_observation import SlurmTranslator, list_unusable_objects
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import (
    defer_reservation_conflicts,
    predict_start_splits,
)
from cpsched_bridge.adapters.slurm.transport import JobOrder, OrderKind
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.adapters.slurm.transport.pyslurm.pyslurm_transport import TransportTrial
from cpsched_bridge.adapters.slurm.unmanaged_jobs import (
    UnmanagedShare,
    find_jobs_above_own_limits,
    find_jobs_of_unusable_policy,
    list_unusable_policy_objects,
    unmanage_jobs,
)
from cpsched_bridge.errors import (
    AnswerNotUnderstood,
    BackendDied,
    BackendError,
    BackendStarting,
    BackendTimeout,
    BackendUnavailable,
    CommandRefused,
    ProgramMissing,
)
from cpsched_bridge.ports import (
    Backend,
    BoostCommand,
    Lease,
    Observation,
    Outcome,
    PreemptionOptions,
    QueueRank,
    ReadinessCheck,
    StartOrder,
    SupportsAccountingChecks,
    SupportsBoost,
    SupportsPreemption,
    UndoOrder,
    Victim,
)

Command = Callable[[Sequence[JobOrder]], Sequence[Outcome]]

BATCH_SIZE = 100
"""Maximum number of orders in one transport call, so that its deadline covers a bounded amount of work."""
HISTORY_S = 7 * 86_400
"""Seconds before startup from which ended jobs are read. A week covers users who submit only on certain days."""
ACCOUNTING_WAIT_S = 120.0
"""Maximum time that `cpsched doctor --accounting` waits for the accounting database, in seconds."""
MAX_FAULTY_ORDERS = 5
"""Number of faulty orders after which a batch is no longer split to find more of them."""


class SlurmBackend(Backend, SupportsBoost, SupportsPreemption, SupportsAccountingChecks):
    """A backend that schedules the jobs of one Slurm controller.

    A start pins a job to a list of nodes. If Slurm might not distribute equal shares as planned, the start also sets a
    number of tasks per node, which fixes the number of nodes. For a job that is placed task by task, the start sets the
    number of nodes, and Slurm distributes the tasks as `predict_start_splits` predicts. An `UndoOrder` restores the
    record fields that the start changed.
    """

    scheduler_interval_s = 60.0  # `sched_interval` of SchedulerParameters
    history_missing = False
    """Whether the last `read_history` was incomplete because the accounting database did not answer."""
    preemption_options: PreemptionOptions | None = None
    transport_trial: TransportTrial | None = None
    """The trial that may replace the transport, or None if the choice has been made."""

    def __init__(
        self,
        transport: SlurmCliTransport,
        policy: PeriodicSitePolicyReader | None = None,
        most_boost: int = 0,
        load: ControllerLoadMonitor | None = None,
        advising: SiteFactorBoostAccess | None = None,
    ) -> None:
        self._transport = transport
        self._boost_access = advising or SiteFactorBoostAccess()
        self._policy = policy
        self._most_boost = most_boost
        self._load = load
        self._seen: SlurmRecords | None = None
        self._ranking = PriorityRanker()
        self._preemptors = PreemptorsLeftToSlurm()
        self._ranked_by = 0
        self._translator: SlurmTranslator | None = None
        self._config = SlurmConfig()

    @property
    @override
    def child_starts(self) -> int:
        return self._transport.child_starts

    @property
    @override
    def transport_info(self) -> str:
        return f"{self._transport.name}: {self._transport.why}"

    @property
    @override
    def starts_in_one_change(self) -> bool:
        return self._transport.starts_in_one_change

    @override
    def not_ready_reason(self) -> str | None:
        return self._transport.not_ready_reason()

    @override
    def observe(self, pinned: Collection[int] = ()) -> Observation:
        translator = self._get_translator()
        records = self._transport.read()
        self._finish_transport_trial(len(records.jobs))
        notes = tuple(self._policy.poll()) if self._policy is not None else ()
        reading = self._get_policy_reading()
        if reading is not None:
            records = name_users(records, reading.user_names)
        self._seen = records
        licenses = reading.policy.licenses if reading is not None else ()
        exempt_qos = reading.policy.partition_limit_exemptions if reading is not None else {}
        observation = translator.observe(records, pinned, self._get_account_parents(), licenses, exempt_qos)
        busy = "" if self._load is None else self._load.poll()
        if reading is None:
            return dataclasses.replace(observation, notes=notes, busy=busy)

        # The site's priorities and limits complete the observation. Jobs that they do not cover are left to Slurm.
        self._update_ranking_policy(reading)
        pending, left_by_policy = unmanage_jobs(
            observation.pending, find_jobs_of_unusable_policy(observation.pending, reading)
        )
        pending, limits = self._ranking.rank_jobs(pending, records)
        pending, left_by_limits = unmanage_jobs(pending, find_jobs_above_own_limits(limits))
        observation = dataclasses.replace(
            observation,
            pending=tuple(pending),
            unmanaged=(*observation.unmanaged, *left_by_policy, *left_by_limits),
            limits=limits,
            unusable=(*observation.unusable, *list_unusable_policy_objects(reading)),
            notes=notes,
            busy=busy,
        )
        return self._preemptors.leave(observation, records.jobs, reading.policy, self.preemption_options)

    def _update_ranking_policy(self, reading: SitePolicyReading) -> None:
        assert self._policy is not None
        if self._ranked_by != self._policy.version:
            self._ranking.set_policy(reading)
            self._ranked_by = self._policy.version

    def _finish_transport_trial(self, jobs: int) -> None:
        """Use the transport that the trial chooses after a reading of this number of jobs, if it ends now."""
        if self.transport_trial is not None and (chosen := self.transport_trial.choose_transport(jobs)) is not None:
            self._transport, self.transport_trial = chosen, None

    @override
    def read_history(self) -> Sequence[EndedJob]:
        """Return ended jobs from the accounting database or, if it fails, from slurmctld."""
        translator = self._get_translator()
        seen = self._transport.read()
        if not self._config.accounting_storage_type:
            return translator.list_remembered_ended_jobs(seen)
        try:
            past = self._transport.read_accounting(int(seen.now_s - HISTORY_S))
        except BackendError as error:
            # Starting with incomplete history is better than not starting.
            if not self.history_missing:
                structlog.get_logger("slurm").warning("no_history", detail=str(error))
            self.history_missing = True
            return translator.list_remembered_ended_jobs(seen)
        self.history_missing = False
        return translator.translate_sacct_jobs(past, seen)

    @override
    def resolve_layout(
        self, orders: Sequence[StartOrder], under_way: Sequence[StartOrder] = ()
    ) -> Sequence[StartOrder | Outcome]:
        """Return the starts with Slurm's own split, and with the nice values that place them above other jobs."""
        translator = self._get_translator()
        machine, free, seen = translator.machine, translator.free, self._seen
        if machine is None or free is None or seen is None:
            return [Outcome.not_sent(order.job_id, "the bridge has not read the cluster yet") for order in orders]
        found = predict_start_splits(orders, under_way, free, machine)
        found = defer_reservation_conflicts(found, under_way, translator.to_come, machine, seen.now_s)
        return self._add_boosting_nices(found, seen)

    @override
    def start(self, orders: Sequence[StartOrder]) -> Sequence[Outcome]:
        return self._send_orders("start", orders)

    def _add_boosting_nices(
        self, found: Sequence[StartOrder | Outcome], seen: SlurmRecords
    ) -> list[StartOrder | Outcome]:
        """Return the starts with the nice values of the jobs to boost, and with what restores these values."""
        reading = self._get_policy_reading()
        if not self._most_boost or reading is None or reading.policy.priority.kind == "basic":
            return list(found)
        wanted = {order.job_id: order.job for order in found if isinstance(order, StartOrder)}
        slurm_jobs = {
            number: slurm_job.in_partition(wanted[number].queue)
            for slurm_job in seen.jobs
            if slurm_job.state == slurm_states.PENDING
            for number in slurm_job_ids.list_job_numbers(slurm_job)
            if number in wanted
        }
        starts = {number: (slurm_job, wanted[number].priority) for number, slurm_job in slurm_jobs.items()}
        needed = compute_start_boosts(starts, seen, reading.policy, self._most_boost)

        def add_nice(order: StartOrder) -> StartOrder:
            own = slurm_jobs[order.job_id].nice
            restore = f"{order.settings.restore} Nice={own}".lstrip()
            nice = own - needed[order.job_id]
            return dataclasses.replace(order, settings=dataclasses.replace(order.settings, nice=nice, restore=restore))

        return [
            add_nice(order) if isinstance(order, StartOrder) and order.job_id in needed else order for order in found
        ]

    @override
    def hold(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._send_orders("hold", orders)

    @override
    def release(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._send_orders("release", orders)

    @override
    def unpin(self, orders: Sequence[UndoOrder]) -> Sequence[Outcome]:
        return self._send_orders("unpin", orders)

    @override
    def preempt(self, victims: Sequence[Victim]) -> Sequence[Outcome]:
        running = {} if self._seen is None else slurm_job_ids.index_preemptible_jobs(self._seen.jobs)
        unknown = SlurmJob(0, slurm_states.UNKNOWN)
        orders = []
        for victim in victims:
            slurm_job = running.get(victim.job_id, unknown)
            orders.append(dataclasses.replace(victim, partition=slurm_job.partition, qos=slurm_job.qos))
        return self._send_orders("preempt", orders)

    @override
    def read_ranks(self) -> Sequence[QueueRank]:
        """Return the ranks of the last observation's jobs from current `sprio` values."""
        seen = self._seen or self._transport.read()
        reading = self._get_policy_reading()
        partitions = {} if reading is None else reading.policy.partitions
        return self._boost_access.read_ranks(
            seen.jobs, {name: partition.tier for name, partition in partitions.items()}
        )

    @override
    def set_boosts(self, commands: Sequence[BoostCommand]) -> Sequence[Outcome]:
        """Set `SiteFactor` with scontrol."""
        return self._boost_access.set_job_boosts(commands)

    @override
    def acquire_lease(self, lease: Lease, expected: Lease | None) -> bool:
        """Write the lease into a far-future reservation, which operators may create."""
        before = None if expected is None else format_lease(expected)
        return self._transport.acquire_lease(format_lease(lease), before)

    @override
    def run_checks(self) -> Sequence[ReadinessCheck]:
        if self._policy is not None:
            self._policy.start_reading()  # The policy commands run during the calls below.
        try:
            facts = self._transport.gather_doctor_facts()
        except BackendStarting:
            raise
        except BackendError as error:
            name = "programs" if isinstance(error, ProgramMissing) else "controller"
            return [ReadinessCheck(name, False, str(error), _suggest_reading_remedy(error), may_pass_later=True)]
        found = run_slurm_doctor_checks(facts, self.transport_info, self._policy is not None)
        try:
            records = self._transport.read()
        except BackendError as error:
            return [
                *found,
                ReadinessCheck("reading", False, str(error), _suggest_reading_remedy(error), may_pass_later=True),
            ]
        policy = self._run_policy_checks(records)
        parameters = facts["config"].select_type_parameters or ()
        reading = self._get_policy_reading()
        unusable = [
            *list_unusable_objects(records),
            *(list_unusable_policy_objects(reading) if reading is not None else ()),
        ]
        return [*found, check_for_unusable_objects(unusable), *run_node_checks(records, parameters), *policy]

    @override
    def accounting_checks(self, days: float) -> Sequence[ReadinessCheck]:
        """Return the accounting check, waiting at most `ACCOUNTING_WAIT_S` for data."""
        seen, until_s = self._transport.read(), time.monotonic() + ACCOUNTING_WAIT_S
        machine, partitions = self._get_translator().translate_machine_and_partitions(seen)
        while True:
            try:
                past = self._transport.read_accounting(int(seen.now_s - days * 86_400))
                return [UnmanagedShare.of(past, machine, partitions).check(days)]
            except BackendTimeout as error:
                if time.monotonic() >= until_s:
                    return [
                        ReadinessCheck(
                            "accounting share", False, str(error), "start slurmdbd, or request fewer days", False
                        )
                    ]
            time.sleep(1.0)

    def _run_policy_checks(self, records: SlurmRecords) -> list[ReadinessCheck]:
        """Return checks of the site's policy. Only the doctor calls this, so it may wait."""
        if self._policy is None:
            return []
        if self._policy.reading is None:
            self._policy.poll()
        shown = BackgroundCommandQuery(commands={"sprio": (sprio_comparison.COMMAND,)})
        shown.start()
        answers = shown.collect_output(wait=True)
        text = answers.texts.get("sprio") if answers is not None else None
        reading = self._policy.reading
        if reading is not None:
            records = name_users(records, reading.user_names)
        return run_policy_checks(reading, self._policy.failures, text, records)

    @override
    def close(self) -> None:
        if self._policy is not None:
            self._policy.close()
        if self._load is not None:
            self._load.close()
        self._transport.close()
        if self.transport_trial is not None:
            self.transport_trial.pyslurm.close()

    def _get_translator(self) -> SlurmTranslator:
        """Return the translator, which is created on first use from the configuration."""
        if self._translator is None:
            self._config = self._transport.read_config()
            self._translator = SlurmTranslator.from_config(self._config)
        return self._translator

    def _get_policy_reading(self) -> SitePolicyReading | None:
        return None if self._policy is None else self._policy.reading

    def _get_account_parents(self) -> Mapping[str, str] | None:
        """Return the parent of each account, or None if no policy has been read."""
        reading = self._get_policy_reading()
        return None if reading is None else reading.policy.accounts.parent_by_account

    def _send_orders(self, kind: OrderKind, orders: Sequence[JobOrder]) -> list[Outcome]:
        """Send orders in batches and return their outcomes.

        Raise `BackendError` if the first batch fails. Later failures become outcomes.
        """
        outcomes: list[Outcome] = []
        for at in range(0, len(orders), BATCH_SIZE):
            part = orders[at : at + BATCH_SIZE]
            try:
                outcomes += _send_isolating_failures(partial(self._transport.send, kind, epoch=self.epoch), part)
            except BackendError as error:
                if not outcomes:
                    raise
                outcomes += _make_failed_outcomes(part, error)
                outcomes += [Outcome.not_sent(order.job_id, "not sent") for order in orders[at + BATCH_SIZE :]]
                break
        return outcomes


def _suggest_reading_remedy(error: BackendError) -> str:
    """Return advice to the operator about a failed reading."""
    if isinstance(error, AnswerNotUnderstood):
        return "run the command again; if its output is complete, report it with Slurm's version"
    if isinstance(error, ProgramMissing):
        return (
            "install Slurm's commands on this host, or add their folder to PATH: in this shell for `cpsched doctor`, "
            "and as Environment=PATH=... in the service's unit; if slurm.conf is not in its default folder, also set "
            "SLURM_CONF"
        )
    return (
        "start slurmctld, or correct slurm.conf and munge on this host; if slurm.conf is not in its default folder, "
        "set SLURM_CONF"
    )


def _send_isolating_failures(command: Command, orders: Sequence[JobOrder]) -> list[Outcome]:
    """Send orders and return their outcomes. One faulty order fails only itself.

    If a batch is rejected as a whole, each half is sent again until the faulty orders are found. Sending an order twice
    is safe. A crash of the child process counts as a rejection. If `MAX_FAULTY_ORDERS` orders fail and none succeeds,
    the failure is general and is raised. A call that times out is not repeated.
    """
    culprits: list[BackendError] = []

    def send_or_bisect(part: Sequence[JobOrder]) -> list[Outcome]:
        try:
            return list(command(part))
        except (CommandRefused, BackendDied) as error:
            if len(part) > 1 and len(culprits) < MAX_FAULTY_ORDERS:
                half = len(part) // 2
                return send_or_bisect(part[:half]) + send_or_bisect(part[half:])
            culprits.append(error)
            return _make_failed_outcomes(part, error)
        except BackendError as error:
            if part is orders:
                raise
            return _make_failed_outcomes(part, error)

    outcomes = send_or_bisect(orders)
    if len(culprits) >= MAX_FAULTY_ORDERS and not any(outcome.result == "done" for outcome in outcomes):
        raise next((error for error in culprits if isinstance(error, BackendDied)), culprits[0])
    return outcomes


def _make_failed_outcomes(orders: Sequence[JobOrder], error: BackendError) -> list[Outcome]:
    if isinstance(error, BackendUnavailable):
        return [Outcome.not_sent(order.job_id, str(error)) for order in orders]
    lost = isinstance(error, BackendTimeout)
    return [Outcome(order.job_id, "unknown" if lost else "refused", str(error)) for order in orders]
