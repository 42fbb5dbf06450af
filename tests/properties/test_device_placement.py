"""Compare the compiled placement of parts of devices with a slow, plain reference that shares no code with it."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpsched.kernels.device_placement import (
    BEST_FIT,
    FRAGMENTATION,
    ROLLOUT,
    DeviceNodes,
    DevicePlacementRule,
    DeviceRequests,
    place_arrivals,
)
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings

PARTS = st.sampled_from([120, 250, 333, 500, 810, 1000])
KINDS = st.tuples(
    st.integers(0, 12),  # cores
    st.integers(1, 6),  # memory
    st.integers(0, 3),  # devices
    PARTS,
    st.integers(1, 3),  # types
).map(lambda kind: (*kind[:3], 0 if kind[2] == 0 else 1000 if kind[2] > 1 else kind[3], kind[4]))
NODES = st.tuples(st.integers(4, 32), st.integers(4, 24), st.integers(0, 4), st.sampled_from([1, 2]))


def device_fits(kind, cores, free, bit):
    return kind[0] <= cores and kind[4] & bit and sum(parts >= kind[3] for parts in free) >= kind[2]


def taken(free, devices, parts):
    free = list(free)
    for _ in range(devices):
        fullest = min((at for at, left in enumerate(free) if left >= parts), key=lambda at: (free[at], at))
        free[fullest] -= parts
    return free


def fragmentation(typical, shares, cores, free, bit):
    total = 0.0
    for kind, share in zip(typical, shares, strict=True):
        usable = kind[2] > 0 and device_fits(kind, cores, free, bit)
        total += share * sum(left for left in free if not usable or left < kind[3])
    return total


def leftover(typical, rollouts, cores, free, bit):
    totals = []
    for rollout in rollouts:
        left, free_cores = list(free), cores
        for kind in (typical[at] for at in rollout):
            if kind[2] and device_fits(kind, free_cores, left, bit):
                left, free_cores = taken(left, kind[2], kind[3]), free_cores - kind[0]
        totals.append(sum(left))
    return sum(totals) / len(totals)


def reference(nodes, kinds, typical, shares, rollouts, arrivals, rule):
    state = [[cores, memory, [1000] * devices, bit] for cores, memory, devices, bit in nodes]

    def unusable(cores, free, bit):
        value = fragmentation(typical, shares, cores, free, bit)
        return value if rule == FRAGMENTATION else value / 2 + leftover(typical, rollouts, cores, free, bit)

    def options(kind):
        for at, (cores, memory, free, bit) in enumerate(state):
            if kind[1] > memory or not device_fits(kind, cores, free, bit):
                continue
            if kind[2] == 1 and kind[3] < 1000 and rule != BEST_FIT:
                afters = [
                    [left - kind[3] * (device == chosen) for device, left in enumerate(free)]
                    for chosen in range(len(free))
                    if free[chosen] >= kind[3]
                ]
            else:
                afters = [taken(free, kind[2], kind[3])]
            for after in afters:
                if rule == BEST_FIT:
                    score = math.floor(100 * (1 - ((cores - kind[0]) / 128_000 + sum(after) / 8000) / 2))
                else:
                    gain = unusable(cores, free, bit) - unusable(cores - kind[0], after, bit)
                    steps = gain / (1000 / 6)
                    score = math.floor(100 / (1 + math.exp(-gain / 1000)) if rule == FRAGMENTATION else steps)
                yield score, at, after

    chosen = []
    for kind in (kinds[at] for at in arrivals):
        found = list(options(kind))
        best_score = max((option[0] for option in found), default=None)
        last = max((option[1] for option in found if option[0] == best_score), default=None)
        best = next((option for option in found if option[:2] == (best_score, last)), None)
        chosen.append(-1 if best is None else best[1])
        if best is not None:
            _, at, after = best
            state[at] = [state[at][0] - kind[0], state[at][1] - kind[1], after, state[at][3]]
    return chosen, state


@scaled_example_settings(150)
@given(
    st.lists(NODES, min_size=1, max_size=5),
    st.lists(KINDS, min_size=1, max_size=6, unique=True),
    st.sampled_from([BEST_FIT, FRAGMENTATION, ROLLOUT]),
    st.integers(0, 2**16),
)
def test_placements_equal_reference(nodes, kinds, rule, seed):
    """Each node, device and rejection equals the reference, and no device or node is oversubscribed."""
    random = np.random.default_rng(seed)
    arrivals = random.integers(0, len(kinds), 25)
    shares = np.full(len(kinds), 1 / len(kinds))
    rollouts = random.integers(0, len(kinds), (3, 6))
    free_parts = np.zeros((len(nodes), 4), np.int64)
    for at, node in enumerate(nodes):
        free_parts[at, : node[2]] = 1000
    cores, memory, _, types = np.array(nodes).T
    state = DeviceNodes(
        free_cores=np.ascontiguousarray(cores), free_memory=np.ascontiguousarray(memory), free_parts=free_parts,
        types=np.ascontiguousarray(types),
    )  # fmt: skip
    columns = dict(
        zip(("cores", "memory", "devices", "parts", "types"), np.ascontiguousarray(np.array(kinds).T), strict=True)
    )
    requests = DeviceRequests(**columns, shares=shares)

    placement_rule = DevicePlacementRule(rule, requests, rollouts, np.zeros((2, free_parts.shape[1]), np.int64))
    placed_on, fragmented = place_arrivals(state, requests, arrivals, placement_rule)

    expected_nodes, expected_state = reference(nodes, kinds, kinds, shares, rollouts, arrivals, rule)
    assert placed_on.tolist() == expected_nodes
    assert [[*row[: node[2]]] for row, node in zip(free_parts.tolist(), nodes, strict=True)] == [
        row[2] for row in expected_state
    ]
    assert state.free_cores.tolist() == [row[0] for row in expected_state]
    assert state.free_memory.tolist() == [row[1] for row in expected_state]
    assert min(free_parts.min(), state.free_cores.min(), state.free_memory.min()) >= 0
    total = sum(fragmentation(kinds, shares, row[0], row[2], row[3]) for row in expected_state)
    assert math.isclose(fragmented[-1], total, abs_tol=1e-6)
