"""The compiled loops over queue, nodes and running jobs."""

from __future__ import annotations

from typing import Any

from cpsched._jit import IN1, IN2, INT, OUT1, kernel
from cpsched.kernels.carried import build_groups, compact, regroup, shift_lines
from cpsched.kernels.fit import shift_free, take_starts
from cpsched.kernels.groups import BLOCK, blocks_of
from cpsched.kernels.nodes import plan_nodes
from cpsched.kernels.orders import (
    ARRIVAL,
    BEST_FIT,
    COUNTED,
    FIRST_FIT,
    GIVEN,
    GREEDY,
    LAF,
    LJF,
    LONGEST,
    SAF,
    SHORTEST,
    SJF,
    SPF,
    STRICT,
    positions_in,
)
from cpsched.kernels.overrun import OVERRUN_CODES, expected_end, revise_overdue
from cpsched.kernels.pool import plan_pool
from cpsched.kernels.profile import earliest
from cpsched.kernels.state import GROUPS, NODES, TABLE, Array, Groups, Jobs, Machine, groups_of, jobs_of, starts_in
from cpsched.model import NEVER


@kernel(INT(INT, IN2, IN2, IN1, IN1, IN1, IN2, IN2, IN1, IN1, OUT1))
def plan_counted(
    now_s: int,
    free: Array,
    capacity: Array,
    queue: Array,
    order: Array,
    running: Array,
    rows: Array,
    per_unit: Array,
    place_units: Array,
    rule: Array,
    out: Array,
) -> Any:
    """`plan_placed` for a cluster that is one counted pool."""
    jobs = jobs_of(rows, per_unit, place_units, place_units)
    plan = out[: len(queue)]
    plan[:] = NEVER
    positions = positions_in(rule, order, queue, jobs)
    return plan_pool(now_s, free, capacity, queue, positions, running, jobs, rule, plan, starts_in(out, len(queue)))


@kernel(INT(INT, *NODES, IN1, IN1, IN1, *TABLE, *GROUPS, IN1, OUT1))
def plan_placed(
    now_s: int,
    free: Array,
    capacity: Array,
    node_sets: Array,
    kind_of: Array,
    kind_node: Array,
    queue: Array,
    order: Array,
    running: Array,
    rows: Array,
    per_unit: Array,
    place_node: Array,
    place_units: Array,
    group_of: Array,
    group_columns: Array,
    step_at: Array,
    step_free: Array,
    group_used: Array,
    rule: Array,
    out: Array,
) -> Any:
    """Plan a queue on nodes: how many jobs start now; the rest of the answer is in `out`, part after part.

    With n the length of the queue: the planned start by queue position (n); the slots that start (n); the offsets of
    their placements (n + 1); and, in two halves of what is left, nodes and units. A negative result -k says that a half
    must hold k entries.

    Jobs are taken in the order of the `rule`. Those that fit start; the first so many that do not, as many as the rule
    says, reserve their earliest slot; later ones start iff they fit beside what is reserved. A job that the cluster
    could not hold even after all ends is passed over. Unless the whole plan is wanted, it is cut as soon as nothing
    more can start. Without groups (`group_of` empty, or `group_used[3]`) they are built from the other columns.
    """
    machine = Machine(free, capacity, node_sets, kind_of, kind_node)
    groups = groups_of(group_of, group_columns, step_at, step_free, group_used)
    jobs = jobs_of(rows, per_unit, place_node, place_units)
    plan = out[: len(queue)]
    plan[:] = NEVER
    positions = positions_in(rule, order, queue, jobs)
    return plan_nodes(now_s, machine, groups, queue, positions, running, jobs, rule, plan, starts_in(out, len(queue)))


__all__ = [
    "ARRIVAL",
    "BEST_FIT",
    "BLOCK",
    "COUNTED",
    "FIRST_FIT",
    "GIVEN",
    "GREEDY",
    "GROUPS",
    "LAF",
    "LJF",
    "LONGEST",
    "NODES",
    "OVERRUN_CODES",
    "SAF",
    "SHORTEST",
    "SJF",
    "SPF",
    "STRICT",
    "TABLE",
    "Groups",
    "Jobs",
    "Machine",
    "blocks_of",
    "build_groups",
    "compact",
    "earliest",
    "expected_end",
    "groups_of",
    "jobs_of",
    "plan_counted",
    "plan_nodes",
    "plan_placed",
    "plan_pool",
    "positions_in",
    "regroup",
    "revise_overdue",
    "shift_free",
    "shift_lines",
    "starts_in",
    "take_starts",
]
