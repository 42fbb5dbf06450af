"""Define the dispatcher `slurm`, which models slurmctld's scheduler, and when slurmctld runs passes.

Passes run at submissions, at job ends, and by timers. Sources: `slurmctld/controller.c` (`_slurmctld_background`),
`slurmctld/job_mgr.c` (`job_allocate`), `slurmctld/proc_req.c` (`_slurm_rpc_epilog_complete`) and
`sched/backfill/backfill.c` (`backfill_agent`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.slurm.scheduler_parameters import (
    DISABLED,
    SchedulerParameters,
    check_scheduler_parameters,
    merge_scheduler_parameters,
    read_scheduler_parameters,
    scheduler_parameters_of_config,
)
from cpsched.kernels.scheduling_state import copy_starts, empty_column, get_planned_starts
from cpsched.kernels.slurm_passes import (
    DEPTH,
    FULL,
    NO_PASS,
    SUBMITTED,
    BackfillPassState,
    JobOwnerColumns,
    SchedulingPassState,
    SlurmSchedulerRules,
    plan_as_slurm,
)
from cpsched.model import NEVER, NO_STARTS, Cluster, Decision, Effort, IntArray, JobTable, Need, Snapshot, Starts
from cpsched.model.job import PendingCode
from cpsched.planning import ARRIVAL_ORDER, get_scheduling_state, kernel_effort
from cpsched.registration import FileParameter, Registration
from cpsched.wait_reasons import explain_waits

BEFORE_ALL_EVENTS_S = -(1 << 40)
"""A time in seconds before any event."""


class PassScheduleState(NamedTuple):
    """The state of the passes. Times are in seconds, and flags are 0 or 1."""

    seen_s: int = BEFORE_ALL_EVENTS_S
    """Time of the last decision."""
    asked_s: int = BEFORE_ALL_EVENTS_S
    """Time of the last pass that ran because of a request."""
    full_s: int = BEFORE_ALL_EVENTS_S
    """Time of the last pass through the whole queue."""
    pass_s: int = BEFORE_ALL_EVENTS_S
    """Time of the last run of the main loop, for any reason."""
    backfill_s: int = BEFORE_ALL_EVENTS_S
    """Time at which backfill last ran."""
    running: int = 0
    """Number of running jobs after the last decision."""
    waiting: int = 0
    """Number of pending jobs after the last decision."""
    asked: int = 0
    """Whether a pass was requested and has not run yet."""
    changed: int = 0
    """Whether an event since the last backfill could enable a start."""
    cut: int = 0
    """Whether the last run of the main loop stopped at a limit."""


@dataclass(frozen=True, slots=True)
class QueueInstantSummary:
    """Submit times of a nonempty queue's oldest and newest jobs, and running jobs."""

    now_s: int
    oldest_s: int
    newest_s: int
    running: int


@dataclass(frozen=True, slots=True)
class DueSchedulingPasses:
    """The passes due at one instant, and the schedule after passes that start no job."""

    main: int
    backfill: bool
    after: PassScheduleState


def due_passes(agenda: PassScheduleState, rules: SchedulerParameters, seen: QueueInstantSummary) -> DueSchedulingPasses:
    """Return the passes that slurmctld runs now.

    At the first instant, all passes are due. Passes between two instants, without an event, would have started no job,
    so they count as done.
    """
    now_s, first = seen.now_s, agenda.seen_s == BEFORE_ALL_EVENTS_S
    arrived, ended = seen.newest_s > agenda.seen_s, seen.running < agenda.running
    changed = int(agenda.changed or arrived or ended)
    main, after = _main_loop_action(agenda._replace(changed=changed), rules, seen, arrived, ended)
    last_s = agenda.backfill_s
    if rules.bf_interval == DISABLED:
        backfill = False
    else:
        # Without pending jobs, backfill does not run, but it checks every second whether it should.
        next_s = last_s + rules.bf_interval
        next_s = next_s if agenda.waiting else now_s if first else max(next_s, seen.oldest_s)
        if next_s <= now_s:
            last_s = next_s + (now_s - next_s) // rules.bf_interval * rules.bf_interval
        backfill = last_s == now_s
    return DueSchedulingPasses(main, backfill, after._replace(seen_s=now_s, backfill_s=last_s, running=seen.running))


def _main_loop_action(
    agenda: PassScheduleState, rules: SchedulerParameters, seen: QueueInstantSummary, arrived: bool, ended: bool
) -> tuple[int, PassScheduleState]:
    """Return the main loop's action now, and the updated schedule."""
    # A job is tried in the second in which it is submitted, regardless of the timers.
    now_s, is_new = seen.now_s, seen.newest_s >= seen.now_s
    tried = SUBMITTED if is_new and not (rules.defer or rules.defer_batch) else NO_PASS
    if rules.sched_interval == DISABLED:
        return tried, agenda
    interval_s = rules.full_pass_interval_s
    asked = bool(agenda.asked or arrived or (ended and rules.defer))
    at_once = ended and not rules.defer
    if agenda.full_s == BEFORE_ALL_EVENTS_S:
        full_s = now_s
    else:
        full_s = agenda.full_s + (now_s - agenda.full_s) // interval_s * interval_s
    full = full_s == now_s
    listened = asked and now_s - agenda.asked_s >= rules.batch_sched_delay
    if not (full or at_once or listened):
        return tried, agenda._replace(asked=int(asked), full_s=full_s)
    if now_s - agenda.pass_s < min_interval_s(rules):
        return tried, agenda._replace(asked=1, full_s=agenda.full_s)
    asked_s = now_s if full or listened else agenda.asked_s
    return FULL if full else DEPTH, agenda._replace(asked_s=asked_s, full_s=full_s, pass_s=now_s, asked=0, cut=0)


def min_interval_s(rules: SchedulerParameters) -> int:
    """Return `sched_min_interval` in seconds, rounded up, or 0 if below one second."""
    return -(-rules.sched_min_interval // 1_000_000) if rules.sched_min_interval >= 1_000_000 else 0


class SchedulingPassResults(NamedTuple):
    """The results of the passes at one instant."""

    waiting: int
    """Number of jobs that are still pending."""
    started: int
    backfilled: int
    """Number of jobs started by backfill."""
    main_cut: bool
    backfill_cut: bool


def advance_pass_schedule(made: DueSchedulingPasses, came: SchedulingPassResults) -> PassScheduleState:
    """Return the schedule after the passes at one instant."""
    agenda = made.after
    by_main = came.started - came.backfilled
    # A limit that stopped this backfill may not stop the next one. Jobs that backfill tested start in no other pass.
    new = came.backfill_cut and came.started > 0 if made.backfill else bool(agenda.changed or by_main)
    cut = came.main_cut if made.main in (DEPTH, FULL) else bool(agenda.cut)
    running = agenda.running + came.started
    return agenda._replace(waiting=came.waiting, changed=int(new), cut=int(cut), running=running)


def next_pass_s(agenda: PassScheduleState, rules: SchedulerParameters, waiting: int) -> int | None:
    """Return the next second at which a pass may start a job with no event, or None."""
    now_s, found = agenda.seen_s, []
    if not waiting:
        return None
    if agenda.changed and rules.bf_interval != DISABLED:
        found.append(agenda.backfill_s + rules.bf_interval)
    if rules.sched_interval != DISABLED:
        if agenda.asked:
            found.append(max(agenda.asked_s + rules.batch_sched_delay, agenda.pass_s + min_interval_s(rules)))
        if agenda.cut:
            found.append(agenda.full_s + rules.full_pass_interval_s)
    return max(now_s + 1, min(found)) if found else None


NO_PASS_PATH = "no-pass-due"
"""Path of a round in which slurmctld would run no pass."""


class SlurmTwinDispatcher(Dispatcher):
    """A dispatcher that runs slurmctld's main loop and backfill when slurmctld would.

    `scheduler_parameters` is the value of `SchedulerParameters` in slurm.conf. `config_file` is the output of `scontrol
    show config` or a slurm.conf, whose parameters `scheduler_parameters` overrides. Odd words in the file are read as
    Slurm reads them, and reported in `read`. The main loop tries jobs by priority, or by arrival if the site
    does not rank jobs. `reserved` states what backfill reserves. Slurm reserves whole nodes even for a job that needs
    only parts of them. On a cluster with a single node, which represents a pool, backfill always reserves parts.

    The dispatcher stores the times of its passes, and requests its next call through `Decision.again_s`.
    """

    def __init__(
        self,
        scheduler_parameters: str = "",
        config: Annotated[str | None, FileParameter("config_file", text=True)] = None,
        reserved: Literal["whole-nodes", "parts"] = "whole-nodes",
    ) -> None:
        check_scheduler_parameters(scheduler_parameters)
        of_config = scheduler_parameters_of_config(config) if config else ""
        self.read = read_scheduler_parameters(merge_scheduler_parameters(of_config, scheduler_parameters))
        rules = build_scheduler_rules(self.read.parameters)
        self._whole_nodes = reserved == "whole-nodes"
        e = empty_column
        tally = BackfillPassState(rules, 0, 0, 0, e(), e(), e(), e(), e(), e(), e(), 0, e(), e(), 0, e())
        self._passes = SchedulingPassState(NO_PASS, 0, 0, 0, 0, 0, 0, 0, tally)
        self._agenda = self._before = PassScheduleState()
        self._owners = JobOwnerNumberCache()

    @override
    def memory(self) -> list[list[int]]:
        return [list(self._agenda), list(self._before)]

    @override
    def recall(self, memory: Sequence[Sequence[int]]) -> None:
        self._agenda, self._before = PassScheduleState(*memory[0]), PassScheduleState(*memory[1])

    @override
    def decide(self, snapshot: Snapshot, need: Need = "plan") -> Decision:
        """Run the due passes. A second call at the same instant repeats them."""
        return self.decide_in_order(snapshot, need, ARRIVAL_ORDER)

    def decide_in_order(
        self, snapshot: Snapshot, need: Need, order: IntArray, priorities_changed: bool = False
    ) -> Decision:
        """Decide with the queue in `order` (int64[Q] positions), or by priority if empty.

        `priorities_changed` means that priorities have just changed. As after REQUEST_UPDATE_JOB, slurmctld then
        requests a pass, and the next backfill runs.
        """
        n, whole, table = len(snapshot.queue), need == "plan", snapshot.table
        if not n:
            return Decision(NO_STARTS, kernel_effort("empty-queue", 0), ARRIVAL_ORDER if whole else None)
        agenda = self._before if self._agenda.seen_s == snapshot.now_s else self._agenda
        if priorities_changed:
            agenda = agenda._replace(asked=1, changed=1)
        rules, submit_s, queue = self.read.parameters, table.submit_s, snapshot.queue
        seen = QueueInstantSummary(
            snapshot.now_s, int(submit_s[queue[0]]), int(submit_s[queue[-1]]), len(snapshot.running)
        )
        made = due_passes(agenda, rules, seen)
        idle = made.main == NO_PASS and not made.backfill and not whole
        came = SchedulingPassResults(n, 0, 0, False, False) if idle else self._run_passes(snapshot, made, whole, order)
        self._before, self._agenda = agenda, advance_pass_schedule(made, came)
        again_s = next_pass_s(self._agenda, rules, came.waiting)
        if idle:
            return Decision(NO_STARTS, kernel_effort(NO_PASS_PATH, 0), again_s=again_s)
        draft = self._site.draft
        starts = Starts(*copy_starts(draft), True) if came.started else NO_STARTS
        cost = passes_effort(came.started, n)
        if not whole:
            return Decision(starts, cost, again_s=again_s)
        plan_s = get_planned_starts(draft, n)
        waits = explain_waits(snapshot, starts, plan_s, unplanned=PendingCode.NEXT_PASS)
        return Decision(starts, cost, plan_s, waits, again_s)

    def _run_passes(
        self, snapshot: Snapshot, made: DueSchedulingPasses, whole: bool, order: IntArray
    ) -> SchedulingPassResults:
        """Run the passes, which write the starts and the plan to the draft in `_site`."""
        passes, rules = self._passes, self.read.parameters
        passes.main, passes.since_s = made.main, snapshot.now_s - 1
        passes.backfill, passes.whole = int(made.backfill), int(whole)
        passes.next_s = max(snapshot.now_s, made.after.backfill_s + max(1, rules.bf_interval))
        passes.tally.rules.whole_nodes = int(self._whole_nodes and snapshot.cluster.size > 1)
        self._site = get_scheduling_state(snapshot)
        owners = self._owners.find_owners(snapshot.cluster, snapshot.table)
        started = plan_as_slurm(self._site, owners, passes, order)
        waiting = len(snapshot.queue) - started
        return SchedulingPassResults(
            waiting, started, passes.backfilled, bool(passes.main_cut), bool(passes.backfill_cut)
        )


def passes_effort(started: int, n: int) -> Effort:
    """Return the effort of a round in which `started` of `n` jobs start."""
    return kernel_effort("none-starts" if not started else "all-start" if started == n else "some-start", n)


def build_scheduler_rules(parameters: SchedulerParameters) -> SlurmSchedulerRules:
    """Return the parameters in the kernel's format."""

    def never_if_zero(count: int) -> int:
        return count or NEVER

    return SlurmSchedulerRules(
        default_queue_depth=parameters.default_queue_depth,
        partition_job_depth=never_if_zero(parameters.partition_job_depth),
        sched_max_job_start=never_if_zero(parameters.sched_max_job_start),
        bf_window_s=60 * parameters.bf_window,
        bf_resolution_s=parameters.bf_resolution,
        bf_max_job_test=parameters.bf_max_job_test,
        bf_max_job_start=never_if_zero(parameters.bf_max_job_start),
        bf_max_job_user=NEVER if parameters.bf_max_job_assoc else never_if_zero(parameters.bf_max_job_user),
        bf_max_job_part=never_if_zero(parameters.bf_max_job_part),
        bf_max_job_user_part=never_if_zero(parameters.bf_max_job_user_part),
        bf_max_job_assoc=never_if_zero(parameters.bf_max_job_assoc),
        bf_job_part_count_reserve=never_if_zero(parameters.bf_job_part_count_reserve),
        bf_min_age_reserve_s=parameters.bf_min_age_reserve,
        bf_min_prio_reserve=parameters.bf_min_prio_reserve,
        bf_node_space_size=parameters.backfill_table_size,
        bf_busy_nodes=int(parameters.bf_busy_nodes),
        whole_nodes=1,
    )


class JobOwnerNumberCache:
    """A cache of `number_job_owners`, which is valid until the table changes."""

    def __init__(self) -> None:
        self._jobs: object = None
        self._known = 0
        self._owners = JobOwnerColumns(1, *(empty_column() for _ in range(5)))

    def find_owners(self, cluster: Cluster, table: JobTable) -> JobOwnerColumns:
        """Return the owners of all jobs in `table`."""
        if table.jobs is not self._jobs or len(table.jobs) != self._known:
            self._jobs, self._known = table.jobs, len(table.jobs)
            self._owners = number_job_owners(cluster, table)
        return self._owners


def number_job_owners(cluster: Cluster, table: JobTable) -> JobOwnerColumns:
    """Return the partitions, users and associations of all jobs as numbers.

    A partition's nodes are the node set with its name or, if there is no such set, the job's node set.
    """
    jobs, sets = table.jobs, {name: row for row, name in enumerate(cluster.node_set_names) if row}
    partition, user = (
        _number_distinct_names([job.queue for job in jobs]),
        _number_distinct_names([job.user for job in jobs]),
    )
    user_partition = _number_distinct_names([(job.user, job.queue) for job in jobs])
    association = _number_distinct_names([(job.account, job.user) for job in jobs])
    most = 1 + max(int(of.max(initial=0)) for of in (partition, user, user_partition, association))
    node_set = np.fromiter((sets.get(job.queue, job.request.node_set) for job in jobs), np.int64, len(jobs))
    return JobOwnerColumns(most, partition, user, user_partition, association, node_set)


def _number_distinct_names(names: Sequence[object]) -> IntArray:
    numbers: dict[object, int] = {}
    return np.fromiter((numbers.setdefault(name, len(numbers)) for name in names), np.int64, len(names))


REGISTRATIONS = (
    Registration(
        "slurm",
        "A model of slurmctld's main loop and backfill, with its SchedulerParameters.",
        "docs/lookahead.md",
        SlurmTwinDispatcher,
    ),
)
