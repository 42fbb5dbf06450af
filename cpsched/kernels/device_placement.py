"""Place arriving requests for GPUs and parts of GPUs on nodes, so that few idle GPUs become useless.

Nothing ends, and a request that fits nowhere is rejected. Rules, each of which prefers the last node among equals, as
FGD's simulator does with nodes sorted by name:

- `BEST_FIT`: the node with the least idle cores and GPUs afterwards.
- `FRAGMENTATION`: the node on which fragmentation grows least (FGD: Weng et al., "Beware of Fragmentation: Scheduling
  GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, sections 4.2 and 4.3). Fragmentation is
  the expected number of idle parts that the next typical request could not use.
- `ROLLOUT`: the same, for half the fragmentation plus the expected leftover. The leftover is the number of parts that
  are still idle after typical requests have arrived at this node alone until nothing fits. It is the mean over fixed
  random sequences of arrivals (rollouts: Bertsekas, Tsitsiklis and Wu, Journal of Heuristics 3, 1997). Fragmentation
  alone looks one request ahead. The leftover alone does not keep whole nodes for large requests.

A device has `PARTS` parts. A request takes a number of parts on each of its devices, which are distinct.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cpsched.jit.decorators import kernel, scalar_subroutine, subroutine
from cpsched.jit.shared_structs import Column, FixedColumn, Matrix, Reals, SharedStruct
from cpsched.model import IntArray

PARTS = 1000
"""Parts of a device, as in openb's `gpu_milli`."""
BEST_FIT, FRAGMENTATION, ROLLOUT = range(3)

MOST_CORES, MOST_DEVICES = 128_000, 8
"""The amounts of a large node, in thousandths of a core and in devices. Best fit weighs cores and devices with them."""
FGD_STEPS = 100
"""Number of distinct scores of FGD. Coarse scores make ties, so that nodes are filled one after the other."""
ROLLOUT_STEP = PARTS / 6
FRAGMENTATION_WEIGHT = 0.5


class DeviceNodes(SharedStruct):
    """The free capacity of nodes. Cores are in thousandths, memory is in MiB."""

    free_cores: Column
    free_memory: Column
    free_parts: Matrix
    """By node and device. Columns beyond a node's devices are 0."""
    types: Column
    """The device type of each node, as a bit."""


class DeviceRequests(SharedStruct):
    """Kinds of requests, one row each."""

    cores: Column
    memory: Column
    devices: Column
    parts: Column
    """Parts on each device."""
    types: Column
    """The accepted device types, as bits."""
    shares: Reals
    """The share of the kind in all arrivals. Only typical requests need it."""


class DevicePlacementRule(SharedStruct):
    """A rule of placement, with the requests that it expects."""

    code: int
    """`BEST_FIT`, `FRAGMENTATION` or `ROLLOUT`."""
    typical: DeviceRequests
    rollouts: Matrix
    """Typical requests that arrive at one node, by row number in `typical`. Each row is a rollout."""
    scratch: Matrix
    """Two rows for a node's devices."""


@scalar_subroutine
def count_fitting_devices(free_parts: FixedColumn, parts: int) -> int:
    """Return the number of devices with at least `parts` free parts."""
    fitting = 0
    for device in range(len(free_parts)):
        if free_parts[device] >= parts:
            fitting += 1
    return fitting


@scalar_subroutine
def take_fullest_devices(free_parts: Column, devices: int, parts: int) -> None:
    """Take `parts` parts on each of the `devices` fullest devices on which they fit."""
    for _ in range(devices):
        fullest = -1
        for device in range(len(free_parts)):
            if free_parts[device] >= parts and (fullest < 0 or free_parts[device] < free_parts[fullest]):
                fullest = device
        free_parts[fullest] -= parts


@scalar_subroutine
def fits(requests: DeviceRequests, kind: int, cores: int, free_parts: FixedColumn, type_bit: int) -> bool:
    """Return whether a request fits on a node, apart from memory."""
    if cores < requests.cores[kind] or not requests.types[kind] & type_bit:
        return False
    fitting: int = count_fitting_devices(free_parts, requests.parts[kind])
    return bool(fitting >= requests.devices[kind])


@scalar_subroutine
def fragmented_parts(typical: DeviceRequests, cores: int, free_parts: FixedColumn, type_bit: int) -> float:
    """Return the expected number of a node's idle parts that the next typical request cannot use.

    A request without devices uses none.
    """
    idle = int(free_parts.sum())
    if idle == 0:
        return 0.0

    expected = 0.0
    for kind in range(len(typical.cores)):
        unusable = idle
        if typical.devices[kind] > 0 and fits(typical, kind, cores, free_parts, type_bit):
            unusable = 0
            for device in range(len(free_parts)):
                if free_parts[device] < typical.parts[kind]:
                    unusable += free_parts[device]
        expected += typical.shares[kind] * unusable
    return expected


@subroutine
def expected_leftover(rule: DevicePlacementRule, cores: int, free_parts: FixedColumn, type_bit: int) -> float:
    """Return the mean number of idle parts after each rollout."""
    typical, rollouts, trial, total = rule.typical, rule.rollouts, rule.scratch[0], 0
    for rollout in range(len(rollouts)):
        trial[:] = free_parts
        idle, free_cores = int(free_parts.sum()), cores
        for arrival in range(rollouts.shape[1]):
            if idle == 0:
                break
            kind = rollouts[rollout, arrival]
            used = typical.devices[kind] * typical.parts[kind]
            if 0 < used <= idle and fits(typical, kind, free_cores, trial, type_bit):
                take_fullest_devices(trial, typical.devices[kind], typical.parts[kind])
                free_cores -= typical.cores[kind]
                idle -= used
        total += idle
    return total / len(rollouts)


@subroutine
def unusable_parts(rule: DevicePlacementRule, cores: int, free_parts: FixedColumn, type_bit: int) -> float:
    """Return what the rule keeps small on each node, in parts."""
    fragmented = fragmented_parts(rule.typical, cores, free_parts, type_bit)
    if rule.code == FRAGMENTATION:
        return fragmented
    return FRAGMENTATION_WEIGHT * fragmented + expected_leftover(rule, cores, free_parts, type_bit)


@scalar_subroutine
def score_gain(rule: DevicePlacementRule, gain: float) -> float:
    """Return the score of a placement that makes `gain` more parts usable."""
    if rule.code == FRAGMENTATION:
        return math.floor(FGD_STEPS / (1.0 + math.exp(-gain / PARTS)))
    return math.floor(gain / ROLLOUT_STEP)


@subroutine
def score_placement(
    rule: DevicePlacementRule, nodes: DeviceNodes, node: int, requests: DeviceRequests, kind: int
) -> tuple[float, int]:
    """Return the best score of a request on a node, and the device for a part of one. It must fit.

    The device is -1 for whole devices, which are the fullest that fit.
    """
    free_parts, cores = nodes.free_parts[node], nodes.free_cores[node]
    cores_after = cores - requests.cores[kind]
    devices, parts = requests.devices[kind], requests.parts[kind]
    if rule.code == BEST_FIT:
        idle_after = free_parts.sum() - devices * parts
        share = (cores_after / MOST_CORES + idle_after / (MOST_DEVICES * PARTS)) / 2
        return math.floor(100 * (1 - share)), -1

    before = unusable_parts(rule, cores, free_parts, nodes.types[node])
    after = rule.scratch[1]
    if devices != 1 or parts == PARTS:
        after[:] = free_parts
        take_fullest_devices(after, devices, parts)
        unusable = unusable_parts(rule, cores_after, after, nodes.types[node])
        return score_gain(rule, before - unusable), -1

    best_score, best_device = -math.inf, -1
    for device in range(len(free_parts)):
        if free_parts[device] < parts:
            continue
        after[:] = free_parts
        after[device] -= parts
        unusable = unusable_parts(rule, cores_after, after, nodes.types[node])
        score = score_gain(rule, before - unusable)
        if score > best_score:
            best_score, best_device = score, device
    return best_score, best_device


@kernel
def place_arrivals(
    nodes: DeviceNodes, requests: DeviceRequests, arrivals: FixedColumn, rule: DevicePlacementRule
) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Place requests in order, and reduce the nodes' free capacity.

    `arrivals` are kinds of requests. Return the node of each arrival, or -1 if it was rejected, and the fragmentation
    of all nodes after each arrival in parts.
    """
    chosen = np.full(len(arrivals), -1)
    fragmentation = np.empty(len(arrivals))
    node_count, typical = len(nodes.free_cores), rule.typical

    # A score is valid until its node changes.
    scores = np.zeros((len(requests.cores), node_count))
    devices = np.zeros((len(requests.cores), node_count), np.int64)
    scored_changes = np.full((len(requests.cores), node_count), -1)
    changes = np.zeros(node_count, np.int64)

    fragmented = np.empty(node_count)
    for node in range(node_count):
        fragmented[node] = fragmented_parts(typical, nodes.free_cores[node], nodes.free_parts[node], nodes.types[node])
    total = fragmented.sum()

    for arrival in range(len(arrivals)):
        kind = arrivals[arrival]
        best = -1
        for node in range(node_count):
            if nodes.free_memory[node] < requests.memory[kind]:
                continue
            if not fits(requests, kind, nodes.free_cores[node], nodes.free_parts[node], nodes.types[node]):
                continue
            if scored_changes[kind, node] != changes[node]:
                score, device = score_placement(rule, nodes, node, requests, kind)
                scores[kind, node], devices[kind, node] = score, device
                scored_changes[kind, node] = changes[node]
            if best < 0 or scores[kind, node] >= scores[kind, best]:
                best = node

        if best >= 0:
            chosen[arrival] = best
            nodes.free_cores[best] -= requests.cores[kind]
            nodes.free_memory[best] -= requests.memory[kind]
            if devices[kind, best] >= 0:
                nodes.free_parts[best, devices[kind, best]] -= requests.parts[kind]
            else:
                take_fullest_devices(nodes.free_parts[best], requests.devices[kind], requests.parts[kind])
            changes[best] += 1
            total -= fragmented[best]
            fragmented[best] = fragmented_parts(
                typical, nodes.free_cores[best], nodes.free_parts[best], nodes.types[best]
            )
            total += fragmented[best]
        fragmentation[arrival] = total
    return chosen, fragmentation
