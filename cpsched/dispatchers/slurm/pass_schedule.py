"""When slurmctld goes through its queue: at submissions, at ends, and by its clocks.

Read in `slurmctld/controller.c` (`_slurmctld_background`), `slurmctld/job_mgr.c` (`job_allocate`),
`slurmctld/proc_req.c` (`_slurm_rpc_epilog_complete`) and `sched/backfill/backfill.c` (`backfill_agent`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cpsched.dispatchers.slurm.scheduler_parameters import OFF, SchedulerParameters
from cpsched.kernels.slurm_passes import DEPTH, FULL, NO_PASS, SUBMITTED

LONG_AGO_S = -(1 << 40)
"""Before anything happened."""


class PassSchedule(NamedTuple):
    """What there is to know of the passes before the instant that is decided next; all in seconds, or 0 and 1."""

    seen_s: int = LONG_AGO_S
    """When it was last decided."""
    asked_s: int = LONG_AGO_S
    """When a pass that was asked for last ran."""
    full_s: int = LONG_AGO_S
    """When the whole queue was gone through last."""
    pass_s: int = LONG_AGO_S
    """When the main loop ran last, for whatever reason."""
    backfill_s: int = LONG_AGO_S
    """When backfill began last."""
    running: int = 0
    """How many jobs ran afterwards."""
    waiting: int = 0
    """How many jobs waited afterwards."""
    asked: int = 0
    """Whether a pass is asked for, and not yet made."""
    changed: int = 0
    """Whether anything happened since backfill ran that it might make use of."""
    cut: int = 0
    """Whether the last main loop stopped at a limit."""


@dataclass(frozen=True, slots=True)
class QueueObservation:
    """What is seen at one instant: of a queue that is not empty, when its oldest and its newest job were submitted."""

    now_s: int
    oldest_s: int
    newest_s: int
    running: int


@dataclass(frozen=True, slots=True)
class DuePasses:
    """The passes of one instant, and the agenda as they leave it if they start nothing."""

    main: int
    backfill: bool
    after: PassSchedule


def due_passes(agenda: PassSchedule, rules: SchedulerParameters, seen: QueueObservation) -> DuePasses:
    """Which passes slurmctld makes now.

    At the first instant all are due. Passes between two instants, while nothing happened, would have started nothing;
    they count as made.
    """
    now_s, first = seen.now_s, agenda.seen_s == LONG_AGO_S
    arrived, ended = seen.newest_s > agenda.seen_s, seen.running < agenda.running
    changed = int(agenda.changed or arrived or ended)
    main, after = _main(agenda._replace(changed=changed), rules, seen, arrived, ended)
    last_s = agenda.backfill_s
    if rules.bf_interval == OFF:
        backfill = False
    else:
        # While nobody waits backfill does not run, but looks every second whether it should.
        next_s = last_s + rules.bf_interval
        next_s = next_s if agenda.waiting else now_s if first else max(next_s, seen.oldest_s)
        if next_s <= now_s:
            last_s = next_s + (now_s - next_s) // rules.bf_interval * rules.bf_interval
        backfill = last_s == now_s
    return DuePasses(main, backfill, after._replace(seen_s=now_s, backfill_s=last_s, running=seen.running))


def _main(
    agenda: PassSchedule, rules: SchedulerParameters, seen: QueueObservation, arrived: bool, ended: bool
) -> tuple[int, PassSchedule]:
    """What the main loop does now, and the agenda with that noted."""
    # A job is tried in the second in which it is submitted, whatever the clocks say.
    now_s, is_new = seen.now_s, seen.newest_s >= seen.now_s
    tried = SUBMITTED if is_new and not (rules.defer or rules.defer_batch) else NO_PASS
    if rules.sched_interval == OFF:
        return tried, agenda
    asked = bool(agenda.asked or arrived or (ended and rules.defer))
    at_once = ended and not rules.defer
    if agenda.full_s == LONG_AGO_S:
        full_s = now_s
    else:
        full_s = agenda.full_s + (now_s - agenda.full_s) // rules.sched_interval * rules.sched_interval
    full = full_s == now_s
    listened = asked and now_s - agenda.asked_s >= rules.batch_sched_delay
    if not (full or at_once or listened):
        return tried, agenda._replace(asked=int(asked), full_s=full_s)
    if now_s - agenda.pass_s < min_interval_s(rules):
        return tried, agenda._replace(asked=1, full_s=agenda.full_s)
    asked_s = now_s if full or listened else agenda.asked_s
    return FULL if full else DEPTH, agenda._replace(asked_s=asked_s, full_s=full_s, pass_s=now_s, asked=0, cut=0)


def min_interval_s(rules: SchedulerParameters) -> int:
    """`sched_min_interval` in whole seconds: what is less than a second is nothing here."""
    return -(-rules.sched_min_interval // 1_000_000) if rules.sched_min_interval >= 1_000_000 else 0


class PassResults(NamedTuple):
    """What came of the passes of an instant."""

    waiting: int
    """Jobs that still wait."""
    started: int
    backfilled: int
    """How many of the jobs that started were started by backfill."""
    main_cut: bool
    backfill_cut: bool


def after_passes(made: DuePasses, came: PassResults) -> PassSchedule:
    """The agenda after the passes of an instant."""
    agenda = made.after
    by_main = came.started - came.backfilled
    # What backfill was kept from by a limit, the next one may start; what it has seen, no other starts.
    new = came.backfill_cut and came.started > 0 if made.backfill else bool(agenda.changed or by_main)
    cut = came.main_cut if made.main in (DEPTH, FULL) else bool(agenda.cut)
    running = agenda.running + came.started
    return agenda._replace(waiting=came.waiting, changed=int(new), cut=int(cut), running=running)


def next_pass_s(agenda: PassSchedule, rules: SchedulerParameters, waiting: int) -> int | None:
    """The next second at which a pass may start a job even if nothing happens until then; None: none will."""
    now_s, found = agenda.seen_s, []
    if not waiting:
        return None
    if agenda.changed and rules.bf_interval != OFF:
        found.append(agenda.backfill_s + rules.bf_interval)
    if rules.sched_interval != OFF:
        if agenda.asked:
            found.append(max(agenda.asked_s + rules.batch_sched_delay, agenda.pass_s + min_interval_s(rules)))
        if agenda.cut:
            found.append(agenda.full_s + rules.sched_interval)
    return max(now_s + 1, min(found)) if found else None
