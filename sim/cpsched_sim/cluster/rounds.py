"""The replay's loop compiled, with the kernel of the list schedulers in it: the same rounds, the same starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cpsched._jit import IN1, INT, OUT1, kernel
from cpsched.kernels import COUNTED, plan_counted, plan_placed
from cpsched.model import NEVER
from cpsched.planning import AS_THEY_CAME, Scheme
from cpsched_sim.cluster.events import (
    DUE,
    NOW,
    PAUSE_WHERE_NEEDED,
    POOL,
    QUEUED,
    ROUNDS,
    RUNNING,
    STATE,
    begin,
    pass_time,
    state_of,
)
from cpsched_sim.cluster.state import SimulatedCluster

Array = Any

OVER, MORE, NEEDS_ROOM, NEEDS_POOL, FAULTY = range(5)
"""Why the loop came back: nothing is left; it ran its rounds; `out` or the placement pool is too small, and the round
is due again; a start broke a rule, and the round was left without one."""

NONE_START, SOME_START, ALL_START, NEED = range(4)
"""Fields of `counts`: rounds by path; the room needed."""
PATHS = ("none-starts", "some-start", "all-start")

ROUNDS_A_CALL = 20_000
"""Decided rounds between two looks at progress and interrupts."""


@kernel(INT(INT, INT, IN1, IN1, OUT1, OUT1, *STATE), makes_arrays=False)
def rounds(
    most: int,
    overrun: int,
    rule: Array,
    order: Array,
    out: Array,
    counts: Array,
    clock: Array,
    arrivals: Array,
    own: Array,
    total_free: Array,
    free: Array,
    capacity: Array,
    node_sets: Array,
    kind_of: Array,
    kind_node: Array,
    rows: Array,
    per_unit: Array,
    place_node: Array,
    place_units: Array,
    group_of: Array,
    group_columns: Array,
    step_at: Array,
    step_free: Array,
    group_used: Array,
    signature: Array,
    known: Array,
    table: Array,
) -> Any:
    """Up to `most` decided rounds; `order` is empty, `out` as in `plan_placed`."""
    state = state_of(
        clock, arrivals, own, total_free, free, capacity, node_sets, kind_of, kind_node, rows, per_unit, place_node,
        place_units, group_of, group_columns, step_at, step_free, group_used, signature, known, table,
    )  # fmt: skip
    for _ in range(most):
        if pass_time(state, PAUSE_WHERE_NEEDED, NEVER - 1, overrun) == 0:
            return OVER
        n = clock[QUEUED]
        half = (len(out) - 3 * n - 1) // 2
        count, entries = -n, 0
        waiting, active = state.queue[:n], state.running[: clock[RUNNING]]
        if half > 0 and rule[COUNTED]:
            count = plan_counted(clock[NOW], free, capacity, waiting, order, active, rows, per_unit, place_units, rule,
                                 out)  # fmt: skip
        elif half > 0:
            count = plan_placed(clock[NOW], free, capacity, node_sets, kind_of, kind_node, waiting, order, active,
                                rows, per_unit, place_node, place_units, group_of, group_columns, step_at, step_free,
                                group_used, rule, out)  # fmt: skip
        if count > 0:
            entries = out[2 * n + count]
        if count < 0 or clock[POOL] + entries > len(place_node):
            counts[NEED] = 3 * n + 1 - 2 * count if count < 0 else clock[POOL] + entries
            clock[DUE] = 1
            clock[ROUNDS] -= 1
            return NEEDS_ROOM if count < 0 else NEEDS_POOL
        counts[ALL_START if count == n else SOME_START if count > 0 else NONE_START] += 1
        if count > 0:
            first = 3 * n + 1
            fault = begin(state, out[n : n + count], out[2 * n : 2 * n + count + 1], out[first : first + entries],
                          out[first + half : first + half + entries])  # fmt: skip
            if fault >= 0:
                counts[NEED] = out[n + fault]
                return FAULTY
    return MORE


def run_rounds(
    state: SimulatedCluster, scheme: Scheme, paths: dict[str, int], violations: list[str], tell: Callable[[], None]
) -> None:
    """Run until nothing is left to happen; rounds are counted into `paths`, broken rules noted in `violations`."""
    codes = scheme.codes(state.cluster.counted, False)
    out, counts = np.empty(4096, np.int64), np.zeros(4, np.int64)
    result = MORE
    while result != OVER:
        result = rounds(ROUNDS_A_CALL, state.overrun_code, codes, AS_THEY_CAME, out, counts, *state.state)
        if result == NEEDS_ROOM:
            out = np.empty(2 * int(counts[NEED]), np.int64)
        elif result == NEEDS_POOL:
            state.grow_pool(int(counts[NEED]))
        elif result == FAULTY:
            violations.append(f"job {state.jobs[int(counts[NEED])].id}: does not fit the cluster as it is")
        tell()
    paths.update({name: int(n) for name, n in zip(PATHS, counts.tolist(), strict=False) if n})
