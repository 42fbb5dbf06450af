"""What a replay says about its settings, told where it bites: nobody has to know it beforehand."""

from __future__ import annotations

from cpsched.dispatchers.list_scheduler import ListSchedulerDispatcher
from cpsched.dispatchers.slurm.boosted_slurm import BoostedSlurmDispatcher
from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmDispatcher
from cpsched.formatting import percent
from cpsched.planning import GREEDY, STRICT
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import Schedule

MANY_OVERRUN = 0.1
"""Share of the jobs: with walltimes as estimates hardly a job outlives its own."""


def hints_of(policy: Policy, schedule: Schedule) -> tuple[str, ...]:
    """The hints, a sentence each."""
    return (*_overrun(policy, schedule), *_not_modelled(policy))


def _not_modelled(policy: Policy) -> tuple[str, ...]:
    """Name the given parameters of Slurm that its twin does not model."""
    dispatcher = policy.dispatcher.twin if isinstance(policy.dispatcher, BoostedSlurmDispatcher) else policy.dispatcher
    if not isinstance(dispatcher, SlurmDispatcher) or not dispatcher.read.not_modelled:
        return ()
    return (f"SchedulerParameters that the twin does not model: {', '.join(dispatcher.read.not_modelled)}",)


def _overrun(policy: Policy, schedule: Schedule) -> tuple[str, ...]:
    """Plans with jobs that are expected to end in a second, again and again, are plans with nodes that do not come."""
    share = schedule.overran / max(1, len(schedule.start_s))
    if policy.overrun != "one-second" or share < MANY_OVERRUN or not _plans(policy):
        return ()
    said = f"{percent(share)} of the jobs outlived their estimates, and overrun=one-second then expects each to end"
    return (f"{said} in a second, for hours on end: reservations are planned on nodes that do not come; "
            "overrun=walltime or overrun=double may serve better",)  # fmt: skip


def _plans(policy: Policy) -> bool:
    """Whether the dispatcher reserves anything, as far as that is known."""
    dispatcher = policy.dispatcher
    return not (isinstance(dispatcher, ListSchedulerDispatcher) and dispatcher.scheme.reservations in (STRICT, GREEDY))
