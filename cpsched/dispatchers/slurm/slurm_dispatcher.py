"""Define the dispatcher `slurm`, which models slurmctld's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.base import Dispatcher
from cpsched.dispatchers.slurm.pass_schedule import (
    DueSchedulingPasses,
    PassScheduleState,
    QueueInstantSummary,
    SchedulingPassResults,
    advance_pass_schedule,
    due_passes,
    next_pass_s,
)
from cpsched.dispatchers.slurm.scheduler_parameters import (
    SchedulerParameters,
    check_scheduler_parameters,
    merge_scheduler_parameters,
    read_scheduler_parameters,
    scheduler_parameters_of_config,
)
from cpsched.kernels.scheduling_state import copy_starts, empty_column, get_planned_starts
from cpsched.kernels.slurm_passes import (
    NO_PASS,
    BackfillPassState,
    JobOwnerColumns,
    SchedulingPassState,
    SlurmSchedulerRules,
    plan_as_slurm,
)
from cpsched.model import NEVER, NO_STARTS, Cluster, Decision, Effort, IntArray, JobTable, Need, Snapshot, Starts
from cpsched.model.reason import PendingCode
from cpsched.planning import ARRIVAL_ORDER, get_scheduling_state, kernel_effort
from cpsched.registration import FileParameter, Registration
from cpsched.wait_reasons import explain_waits

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
