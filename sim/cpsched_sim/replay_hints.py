"""Hints about the settings of a replay, shown only if they affect the result."""

from __future__ import annotations

from cpsched.dispatchers.list_dispatchers import ListSchedulerDispatcher
from cpsched.dispatchers.slurm.boosted_slurm import PlanAdvisedSlurmDispatcher
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.formatting import format_percent
from cpsched.planning import GREEDY, STRICT
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import Schedule

MIN_OVERRUN_SHARE = 0.1
"""Minimum share of jobs that exceed their estimates for a hint. If estimates are walltimes, few jobs exceed them."""


def find_replay_hints(policy: Policy, schedule: Schedule) -> tuple[str, ...]:
    """Return the hints, one sentence each."""
    return (*_overrun_hint(policy, schedule), *list_scheduler_parameter_hints(policy))


def list_scheduler_parameter_hints(policy: Policy) -> tuple[str, ...]:
    """Return a hint on the Slurm parameters that the twin does not model, and one per word that Slurm ignores."""
    dispatcher = (
        policy.dispatcher.twin if isinstance(policy.dispatcher, PlanAdvisedSlurmDispatcher) else policy.dispatcher
    )
    if not isinstance(dispatcher, SlurmTwinDispatcher):
        return ()
    names = ", ".join(dispatcher.read.not_modelled)
    unmodelled = (f"SchedulerParameters that the twin does not model: {names}",) if names else ()
    return (*unmodelled, *(f"SchedulerParameters: {remark}" for remark in dispatcher.read.remarks))


def _overrun_hint(policy: Policy, schedule: Schedule) -> tuple[str, ...]:
    """Return a hint if many running jobs are always expected to end within a second.

    Such expectations distort plans.
    """
    share = schedule.overran / max(1, len(schedule.start_s))
    if policy.overrun != "one-second" or share < MIN_OVERRUN_SHARE or not _makes_reservations(policy):
        return ()
    hint = f"{format_percent(share)} of the jobs ran longer than estimated; overrun=one-second then expects each to end"
    return (f"{hint} within a second, even for hours: reservations are planned on nodes that are not released; "
            "consider overrun=walltime or overrun=double",)  # fmt: skip


def _makes_reservations(policy: Policy) -> bool:
    """Return whether the dispatcher is known to make reservations."""
    dispatcher = policy.dispatcher
    return not (isinstance(dispatcher, ListSchedulerDispatcher) and dispatcher.scheme.reservations in (STRICT, GREEDY))
