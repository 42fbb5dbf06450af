import pytest

from cpsched.errors import InvalidValue
from cpsched.model.blocks import BlockRule, BlockTopology


@pytest.mark.parametrize(
    ("blocks", "block_nodes", "levels", "count", "error"),
    [
        ((0, 1), -1, 1, 2, "block_nodes=-1: must be positive"),
        ((0, 1), 0, 1, 2, "block_nodes=0: must be positive"),
        ((0, 1), 4, 6, 2, "levels=6: must contain level 0"),
        ((0, 2), 4, 3, 2, "blocks=2: must be below 2"),
        ((0, 3), 4, 3, 2, "blocks=3: must be below 2"),
    ],
)
def test_refuses_topology(blocks: tuple[int, ...], block_nodes: int, levels: int, count: int, error: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{error}$"):
        BlockTopology(blocks, block_nodes, levels, count)


def test_row_of_rule_contains_topology() -> None:
    topology = BlockTopology((0, -1, 2), 1, 5, 3)
    assert BlockRule(6).to_row(topology) == (6, 1, 5, 3, 0, False, False)
    assert BlockRule(7, 4, spread=True).to_row(topology) == (7, 1, 5, 3, 4, True, False)


def test_topology_may_have_no_nodes() -> None:
    assert BlockTopology((), 1, 1, 0).count == 0
