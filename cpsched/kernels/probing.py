"""When would a job start that nobody has submitted? It is tried on a plan of the whole queue, without a part in it."""

from __future__ import annotations

from cpsched.compile.handles import FixedColumn
from cpsched.compile.jit import inner, kernel
from cpsched.kernels.nodes import commit, make_room_by_group, open_trial, reserve, starts_now
from cpsched.kernels.pool import open_draft
from cpsched.kernels.state import Site
from cpsched.model import NEVER


@inner
def earliest(site: Site, slot: int) -> int:
    """When a job could start beside everything planned so far; NEVER where it never could."""
    make_room_by_group(site.trial)
    return int(site.now_s) if starts_now(site, slot) else int(reserve(site, slot, site.now_s))


@kernel
def place_all(site: Site, order: FixedColumn) -> int:
    """Place the jobs of the queue in the order of `order` (queue positions), each as early as it delays none before it.

    Unlike `plan_placed`, this plans jobs of a long queue to its end. `site.trial` then holds the plan, for `try_job`.
    Returns how many jobs start now.
    """
    draft, queue = site.draft, site.queue
    open_draft(draft, site.queued)
    draft.offsets[0] = 0
    open_trial(site, NEVER)
    for i in range(site.queued):
        start_s = earliest(site, queue[order[i]])
        if start_s != NEVER:
            commit(site, order[i], start_s, start_s > site.now_s)
    return draft.started


@kernel
def try_job(site: Site, slot: int) -> int:
    """When a job of the table, outside of the queue, could start beside what `place_all` placed; NEVER: it never could.

    The job takes no room, and no note of it is kept: its slot may be another job's afterwards.
    """
    hopeless, slotted = site.trial.hopeless, site.trial.slotted
    start_s = earliest(site, slot)
    site.trial.hopeless, site.trial.slotted = hopeless, slotted
    return start_s
