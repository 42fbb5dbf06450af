"""Starts as Slurm will execute them, with a Slurm that processes them in any order."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import IntArray, Placement, Request
from cpsched_bridge.adapters.shared.node_table import ConfiguredNodeTable
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import (
    NODES_TAKEN,
    UNCERTAIN_LAYOUT,
    find_needed_node_positions,
    predict_start_splits,
    predict_task_distribution,
)
from cpsched_bridge.ports import Outcome, StartOrder
from tests.builders import a_job

CAPACITY = np.array([[16, 1600]] * 4)
NAMES = ("n0", "n1", "n2", "n3")
MACHINE = ConfiguredNodeTable(None, NAMES, {name: at for at, name in enumerate(NAMES)}, ("cores", "MiB"), CAPACITY)
PRIME = Request(17, (1, 0))


def start(request: Request, *placement: tuple[int, int]) -> StartOrder:
    return StartOrder(replace(a_job(), request=request), tuple((NAMES[node], units) for node, units in placement))


def placed(order: StartOrder) -> Placement:
    return tuple((MACHINE.index[name], units) for name, units in order.nodes)


def predicted(
    starts: Sequence[StartOrder], left: IntArray, under_way: Sequence[StartOrder] = ()
) -> list[StartOrder | str]:
    """Return each start as Slurm will execute it, or why it waits."""
    found = predict_start_splits(starts, under_way, left, MACHINE)
    return [each.detail if isinstance(each, Outcome) else each for each in found]


def free(*cores: int) -> IntArray:
    return np.array([[each, 1600] for each in cores])


def test_fills_first_nodes_and_last_gets_rest() -> None:
    wanted = start(PRIME, (0, 5), (1, 12))
    assert predicted([wanted], free(10, 12, 16, 16)) == [start(PRIME, (0, 10), (1, 7))]


def test_omits_unneeded_node() -> None:
    wanted = start(PRIME, (0, 1), (1, 8), (2, 8))
    assert predicted([wanted], free(3, 12, 16, 16)) == [start(PRIME, (1, 12), (2, 5))]


IDLE = (16, 16, 16, 16)
SMALL, LARGE = start(Request(1, (4, 0)), (0, 1)), start(Request(1, (12, 0)), (1, 1))
FULL_FIRST, MOVED, ON_TWO = start(PRIME, (0, 16), (1, 1)), start(PRIME, (0, 12), (1, 5)), start(PRIME, (0, 8), (1, 9))
SHARES = start(Request(2, (8, 0), distinct=True), (0, 1), (1, 1))
WHOLE = start(Request(17, (1, 0), exclusive=True), (0, 16), (1, 1))


@pytest.mark.parametrize(
    ("wanted", "cores", "under_way", "expected"),
    [
        # Equal shares and jobs on one node are kept.
        ([SHARES, SMALL], IDLE, [], [SHARES, SMALL]),
        # A start is deferred if another one changes its split, or it changes the split of an earlier one.
        ([SMALL, MOVED], IDLE, [], [SMALL, UNCERTAIN_LAYOUT]),
        ([MOVED], IDLE, [SMALL], [UNCERTAIN_LAYOUT]),
        ([FULL_FIRST, SMALL], IDLE, [], [FULL_FIRST, UNCERTAIN_LAYOUT]),
        # Starts may share the last node.
        ([FULL_FIRST, start(Request(1, (4, 0)), (1, 1))], IDLE, [], [FULL_FIRST, start(Request(1, (4, 0)), (1, 1))]),
        # Earlier starts and jobs take capacity, a deferred start does not.
        ([FULL_FIRST], (8, 8, 16, 16), [], [NODES_TAKEN]),
        ([SMALL, MOVED, start(PRIME, (1, 12), (2, 5))], IDLE, [],
         [SMALL, UNCERTAIN_LAYOUT, start(PRIME, (1, 16), (2, 1))]),
        ([LARGE, ON_TWO], (8, 16, 16, 16), [], [LARGE, NODES_TAKEN]),
        ([ON_TWO], (8, 16, 16, 16), [LARGE], [NODES_TAKEN]),
        # Whole nodes are used only if they are idle.
        ([WHOLE], IDLE, [], [WHOLE]),
        ([WHOLE], (15, 16, 16, 16), [], [NODES_TAKEN]),
    ],
)  # fmt: skip
def test_start_is_split_as_predicted_or_deferred(
    wanted: list[StartOrder], cores: tuple[int, ...], under_way: list[StartOrder], expected: list[object]
) -> None:
    assert predicted(wanted, free(*cores), under_way) == expected


def any_round(choose: random.Random) -> tuple[IntArray, list[StartOrder]]:
    """What is free, and starts that fit beside each other, placed at random."""
    left = np.array([[choose.randint(0, 16), choose.choice([400, 1600])] for _ in CAPACITY])
    first, starts = left.copy(), []
    for _ in range(choose.randint(1, 5)):
        request = Request(choose.randint(1, 20), (choose.choice([1, 1, 2, 3]), choose.choice([0, 50])))
        placement, units = [], request.units
        for node in choose.sample(range(4), 4):
            here = min(units, int(units_fitting_by_row(request, left[node : node + 1])[0]))
            if here:
                placement.append((node, here))
                units -= here
        if not units:
            starts.append(start(request, *sorted(placement)))
            for node, amounts in amounts_by_node(request, placed(starts[-1]), CAPACITY).items():
                left[node] -= amounts
    return first, starts


def slurm(request: Request, nodes: list[int], left: IntArray) -> Placement | None:
    """Where Slurm puts the tasks given `nodes`: one by one on the first node with room; None: it waits."""
    placed = dict.fromkeys(nodes, 0)
    for _ in range(request.units):
        room = (node for node in nodes if (left[node] >= np.array(request.per_unit) * (placed[node] + 1)).all())
        node = next(room, None)
        if node is None:
            return None
        placed[node] += 1
    return tuple(placed.items())


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_layouts_hold_for_any_order_of_starts(first: int) -> None:
    for seed in range(first, first + 50):
        comes_out_as_settled(random.Random(seed))


def comes_out_as_settled(choose: random.Random) -> None:
    left, starts = any_round(choose)
    sent = [each for each in predicted(starts, left) if isinstance(each, StartOrder)]
    assert sent or not starts, "the first start never waits"
    for _ in range(6):
        now = left.copy()
        for each in choose.sample(sent, len(sent)):
            request, placement = each.job.request, placed(each)
            assert slurm(request, [node for node, _ in placement], now) == placement
            for node, amounts in amounts_by_node(request, placement, CAPACITY).items():
                now[node] -= amounts
        assert (now >= 0).all()


def test_sends_most_starts_of_random_rounds() -> None:
    """Of 200 random rounds, most starts are sent at once."""
    counts = [0, 0]
    for seed in range(200):
        left, starts = any_round(random.Random(1000 + seed))
        counts[0] += sum(isinstance(each, StartOrder) for each in predicted(starts, left))
        counts[1] += len(starts)
    assert counts[0] > counts[1] / 2


MEASURED = json.loads((Path(__file__).parents[5] / "data" / "slurm" / "splits.json").read_text())

ROOM = st.lists(st.integers(0, 9), max_size=6)
TASKS = st.integers(1, 30)


@pytest.mark.parametrize("case", MEASURED["cases"], ids=lambda case: f"{case['options']} on {case['cores']}")
def test_distributes_tasks_like_recorded_slurm(case: dict[str, Any]) -> None:
    """`cores` are those free on each node of the list, `room` the tasks that they hold with their memory and GPUs."""
    assert predict_task_distribution(case["tasks"], case["room"]) == case["split"]


@given(TASKS, ROOM)
def test_keeps_minimal_nodes_that_hold_all_tasks(tasks: int, room: list[int]) -> None:
    kept = find_needed_node_positions(tasks, room)
    if sum(room) < tasks:
        assert kept == []
        return
    held = [room[at] for at in kept]
    assert sum(held) >= tasks
    assert all(sum(held) - each < tasks for each in held)


@given(TASKS, ROOM)
def test_split_is_certain_only_with_single_node_choice(tasks: int, room: list[int]) -> None:
    """Whichever subset of the nodes holds the tasks: where only all of them do, Slurm has no choice of nodes."""
    holders = [
        nodes
        for size in range(len(room) + 1)
        for nodes in itertools.combinations(range(len(room)), size)
        if sum(room[node] for node in nodes) >= tasks
    ]
    found = predict_task_distribution(tasks, room)
    assert (found is not None) == (holders == [tuple(range(len(room)))])
    if found is not None:
        assert found == filled(tasks, room)
        assert min(found) >= 1


def filled(tasks: int, room: list[int]) -> list[int]:
    """Task by task onto the first node that has room: the rule as Slurm's manual has it."""
    placed = [0] * len(room)
    for _ in range(tasks):
        placed[next(node for node, most in enumerate(room) if placed[node] < most)] += 1
    return placed
