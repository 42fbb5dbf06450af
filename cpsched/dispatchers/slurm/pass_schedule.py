"""Compute when slurmctld runs passes: at submissions, at job ends, and by timers.

Sources: `slurmctld/controller.c` (`_slurmctld_background`), `slurmctld/job_mgr.c` (`job_allocate`),
`slurmctld/proc_req.c` (`_slurm_rpc_epilog_complete`) and `sched/backfill/backfill.c` (`backfill_agent`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cpsched.dispatchers.slurm.scheduler_parameters import DISABLED, SchedulerParameters
from cpsched.kernels.slurm_passes import DEPTH, FULL, NO_PASS, SUBMITTED

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
