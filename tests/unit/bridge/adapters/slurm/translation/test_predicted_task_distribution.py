"""How Slurm splits tasks over a list of nodes, compared with a real Slurm and with a plain search."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.adapters.slurm.translation.predicted_task_distribution import (
    find_needed_node_positions,
    predict_task_distribution,
)

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
