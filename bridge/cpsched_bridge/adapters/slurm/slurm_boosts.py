"""Set boosts through `SiteFactor`, and compute the boosts that starts need.

`sprio` shows a job's `SiteFactor`, and `scontrol` sets it.

`SiteFactor` is a term of Slurm's priority that operators may set on any pending job. In Slurm 22.05, 24.11 and 26.05:

- `sprio` shows it for jobs that are not held. `squeue` and `scontrol show job` never show it.
- It takes effect immediately, survives a restart of slurmctld, a hold and a requeue, and defaults to 0.
- If an operator has set the job's `Priority`, Slurm accepts a site factor but ignores it, and `sprio` shows 0.
- Up to 26.05.2, a pass of backfill may restore the priority from before a boost, until Slurm computes it again. `sprio`
  then shows the site factor and a priority without it. Such a job counts as not boosted.
- The pending tasks in one array record share one value. A task that is split off keeps it.

A start needs a boost above unmanaged jobs in Slurm's order. If a pending job that is not held gets no nodes, it blocks
all jobs below it, even pinned ones, until Slurm's next pass. This affects all partitions that share its nodes. Slurm
sorts by tier before priority, so a boost has no effect against a job in a higher tier.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cpsched.site.site_policy import SitePolicy
from cpsched.slurm_text.hostlist import expand_hostlist_or_empty
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.policy.sprio_comparison import COLUMNS, COMMAND, SprioRow, parse_sprio
from cpsched_bridge.adapters.slurm.slurm_records import SlurmRecords
from cpsched_bridge.adapters.slurm.translation import pending_reasons, slurm_job_ids, slurm_states
from cpsched_bridge.adapters.slurm.transport.programs.job_command_rules import (
    ControllerCallError,
    JobCommandRefused,
    format_job_selector,
)
from cpsched_bridge.adapters.slurm.transport.programs.scontrol_session import ScontrolSession
from cpsched_bridge.adapters.slurm.transport.programs.slurm_programs import (
    may_command_have_taken_effect,
    run_and_read_output,
)
from cpsched_bridge.errors import BackendUnavailable
from cpsched_bridge.ports import BoostCommand, Outcome, QueueRank

MAX_BATCH = 100
"""Maximum number of changes between two readings of the current site factors."""
MAX_ROUNDING_ERROR = len(COLUMNS) + 1
"""Maximum difference between the priority in `sprio` and the sum of its factors, because each factor is rounded."""
_NO_LONGER_PENDING = re.compile(r"invalid job id|already running|not pending|already complet|finish", re.IGNORECASE)


@dataclass(slots=True)
class SiteFactorBoostAccess:
    """A reader and writer of site factors. Each command may take `deadline_s` seconds."""

    deadline_s: float = 10.0
    ask: Callable[[list[str], float], str | None] = run_and_read_output
    open_session: Callable[[float], ScontrolSession] = ScontrolSession
    _records: dict[int, SlurmJob] = field(default_factory=dict)

    def read_ranks(self, jobs: Sequence[SlurmJob], tiers: Mapping[str, int]) -> list[QueueRank]:
        """Return Slurm's ranks of the pending jobs in a reading.

        `tiers` are the priority tiers of partitions. A missing partition has tier 1. Raise `BackendUnavailable` if
        sprio does not answer.
        """
        rows = self._read_sprio_rows()
        self._records = {job.id: job for job in jobs if job.state == slurm_states.PENDING}
        return [build_queue_rank(job, rows.get(number), tiers) for number, job in self._records.items()]

    def set_job_boosts(self, commands: Sequence[BoostCommand]) -> list[Outcome]:
        """Set site factors of jobs from the last `read_ranks`, and return the outcomes."""
        outcomes: list[Outcome] = []
        with self.open_session(self.deadline_s) as session:
            for at in range(0, len(commands), MAX_BATCH):
                try:
                    rows = self._read_sprio_rows()
                except BackendUnavailable as error:
                    if not outcomes:
                        raise
                    outcomes += [
                        Outcome.not_sent(each.id, f"not attempted: its state could not be read: {error}")
                        for each in commands[at:]
                    ]
                    break
                outcomes += [self._set_site_factor(each, rows, session) for each in commands[at : at + MAX_BATCH]]
        return outcomes

    def _read_sprio_rows(self) -> dict[int, SprioRow]:
        printed = self.ask(list(COMMAND), self.deadline_s)
        if printed is None:
            raise BackendUnavailable("sprio failed or did not respond")
        return parse_sprio(printed)

    def _set_site_factor(
        self, command: BoostCommand, rows: Mapping[int, SprioRow], session: ScontrolSession
    ) -> Outcome:
        job, row = self._records.get(command.id), rows.get(command.id)
        if job is None:
            return Outcome(command.id, "refused", "is not pending")
        if row is None and command.points:
            return Outcome(command.id, "refused", "is no longer listed by sprio, or is held")
        if row is not None and int(row.site) not in (0, *command.expected_points):
            return Outcome(command.id, "refused", f"SiteFactor={int(row.site)} was set by another actor")
        try:
            reply = session.send_command(f"update JobId={format_job_selector(job)} SiteFactor={int(command.points)}")
        except ControllerCallError as error:
            return Outcome(command.id, "unknown" if error.lost else "refused", str(error), error.code)
        except (JobCommandRefused, ValueError) as error:
            return Outcome(command.id, "refused", str(error))
        if not reply or (not command.points and _NO_LONGER_PENDING.search(reply)):
            return Outcome(command.id, "done", reply)
        return Outcome(command.id, "unknown" if may_command_have_taken_effect(reply) else "refused", reply)


def build_queue_rank(job: SlurmJob, row: SprioRow | None, tiers: Mapping[str, int]) -> QueueRank:
    """Return a pending record's rank from its `sprio` row, which held jobs lack."""
    numbers, array = tuple(slurm_job_ids.list_job_numbers(job)), job.array_id
    label = str(array) if len(numbers) > 1 else slurm_job_ids.format_job_id(numbers[0]) if numbers else str(job.id)
    tier = max(tiers.get(name, 1) for name in job.partition.split(","))
    parent = array if array != job.id else 0
    if row is None:
        return QueueRank(job.id, numbers, 0, 0, tier, label, hidden=True, array_id=parent)
    points, total = int(row.site), int(row.priority)
    rest = sum(row) - row.priority - row.site - 2 * row.nice
    own = total - points if total > 1 else min(1 - points, int(rest))
    fixed = abs(max(1.0, rest + points) - total) > MAX_ROUNDING_ERROR
    if fixed and points:
        return QueueRank(job.id, numbers, int(rest), 0, tier, label, array_id=parent)
    return QueueRank(job.id, numbers, own, points, tier, label, fixed=fixed, array_id=parent)


BLOCKING_REASONS = frozenset({"", "None", "Priority", "Resources"})
"""Reasons of jobs that Slurm has tried or will try to start. A job with any other reason does not block others."""
_NO_NODES: frozenset[str] = frozenset()


def compute_start_boosts(
    starts: Mapping[int, tuple[SlurmJob, int]], seen: SlurmRecords, policy: SitePolicy, most: int
) -> dict[int, int]:
    """Return the boost, by job number, of each start that needs 1 to `most` points.

    `starts` contains records of held jobs, each with its computed priority. Unless the site configures otherwise, a
    release resets a job's age, so the points include the full weight of age.
    """
    if most <= 0:
        return {}
    highest: dict[str, int] = {}
    for job in seen.jobs:
        if _may_block_others(job):
            for name in job.partition.split(","):
                highest[name] = max(highest.get(name, 0), job.priority or 0)
    nodes = {partition.name: frozenset(expand_hostlist_or_empty(partition.nodes)) for partition in seen.partitions}
    lost = 0 if policy.priority.always_accrues else int(policy.priority.weights.age)
    found = {}
    for number, (job, priority) in starts.items():
        own = job.partition
        near = [name for name in highest if nodes.get(own, _NO_NODES) & nodes.get(name, _NO_NODES)]
        own_tier = policy.partition(own).tier
        above = [name for name in near if policy.partition(name).tier >= own_tier]
        if not above or any(policy.partition(name).tier > own_tier for name in above):
            continue
        # Slurm shows priorities below 1 as 1. The job's own nice value causes them.
        points = (priority if priority > 1 else -max(0, job.nice)) - lost
        needed = max(highest[name] for name in above) + 1 - points
        if 0 < needed <= most:
            found[number] = needed
    return found


def _may_block_others(job: SlurmJob) -> bool:
    """Return whether a pending job without a hold or a node list may block others."""
    return (
        job.state == slurm_states.PENDING
        and bool(job.priority)
        and not job.required_nodes
        and pending_reasons.normalize_reason_name(job.state_reason) in BLOCKING_REASONS
    )
