"""Starts as Slurm will execute them, with a Slurm that processes them in any order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cpsched.feasibility import amounts_by_node, units_fitting_by_row
from cpsched.model import IntArray, Placement, Request
from cpsched_bridge.adapters.shared.node_table import ConfiguredNodeTable
from cpsched_bridge.adapters.slurm.translation.start_split_prediction import (
    NODES_TAKEN,
    UNCERTAIN_LAYOUT,
    predict_start_splits,
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


def test_keeps_equal_shares_and_single_node_jobs() -> None:
    wanted = [start(Request(2, (8, 0), distinct=True), (0, 1), (1, 1)), start(Request(1, (4, 0)), (0, 1))]
    assert predicted(wanted, free(16, 16, 16, 16)) == wanted


def test_defers_start_whose_split_another_changes() -> None:
    other, wanted = start(Request(1, (4, 0)), (0, 1)), start(PRIME, (0, 12), (1, 5))
    assert predicted([other, wanted], free(16, 16, 16, 16)) == [other, UNCERTAIN_LAYOUT]
    assert predicted([wanted], free(16, 16, 16, 16), [other]) == [UNCERTAIN_LAYOUT], "on its way already"


def test_defers_start_that_changes_split_of_earlier_one() -> None:
    other, wanted = start(Request(1, (4, 0)), (0, 1)), start(PRIME, (0, 16), (1, 1))
    found = predicted([wanted, other], free(16, 16, 16, 16))
    assert found == [wanted, UNCERTAIN_LAYOUT]


def test_starts_may_share_last_node() -> None:
    other, wanted = start(Request(1, (4, 0)), (1, 1)), start(PRIME, (0, 16), (1, 1))
    assert predicted([wanted, other], free(16, 16, 16, 16)) == [wanted, other]


def test_defers_start_that_no_longer_fits() -> None:
    assert predicted([start(PRIME, (0, 16), (1, 1))], free(8, 8, 16, 16)) == [NODES_TAKEN]


def test_deferred_start_takes_no_capacity() -> None:
    """The second start waits for the first: the third has its nodes as if the second were not there."""
    other, put_off = start(Request(1, (4, 0)), (0, 1)), start(PRIME, (0, 12), (1, 5))
    third = start(PRIME, (1, 12), (2, 5))
    found = predicted([other, put_off, third], free(16, 16, 16, 16))
    assert found == [other, UNCERTAIN_LAYOUT, start(PRIME, (1, 16), (2, 1))]


def test_earlier_starts_take_capacity_from_later_ones() -> None:
    other, wanted = start(Request(1, (12, 0)), (1, 1)), start(PRIME, (0, 8), (1, 9))
    assert predicted([other, wanted], free(8, 16, 16, 16)) == [other, NODES_TAKEN]
    assert predicted([wanted], free(8, 16, 16, 16), [other]) == [NODES_TAKEN]


def test_uses_whole_nodes_only_if_idle() -> None:
    whole = Request(17, (1, 0), exclusive=True)
    wanted = start(whole, (0, 16), (1, 1))
    assert predicted([wanted], free(16, 16, 16, 16)) == [wanted]
    assert predicted([wanted], free(15, 16, 16, 16)) == [NODES_TAKEN]


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
