"""Feature expressions, compared with Python's own evaluation for each node."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled
from cpsched_bridge.adapters.slurm.translation.slurm_jobs import mask_of_features

NODES = list(itertools.product([False, True], repeat=3))
FEATURES = {name: np.array([node[at] for node in NODES]) for at, name in enumerate("abc")}


def from_left(expression: str) -> str:
    """Return an expression without parentheses, with a pair around each operator and all before it."""
    first, *others = re.split(r"(?=[&|])", expression)
    for other in others:
        first = f"({first}{other})"
    return first


def evaluated(expression: str) -> list[bool]:
    """Return whether each node satisfies an expression, according to Python."""
    groups = re.findall(r"\(([^()]*)\)", expression)
    flat = from_left(re.sub(r"\([^()]*\)", "@", expression))
    for group in groups:
        flat = flat.replace("@", from_left(group), 1)
    values = [dict(zip("abcx", [*node, False], strict=True)) for node in NODES]
    return [bool(eval(flat, {}, names)) for names in values]


def test_evaluates_operators_from_left_and_groups_first() -> None:
    rng = random.Random(1)

    def chain(make: list[str]) -> str:
        return "".join(rng.choice("&|") * (at > 0) + word for at, word in enumerate(make))

    for _ in range(300):
        words = [rng.choice("abcx") for _ in range(rng.randint(1, 4))]
        groups = [f"({chain(rng.choices('abcx', k=rng.randint(1, 3)))})" for _ in range(rng.randint(0, 2))]
        parts = [*words, *groups]
        rng.shuffle(parts)
        expression = chain(parts)
        assert mask_of_features(expression, FEATURES, len(NODES), brackets=False).tolist() == evaluated(expression)


def test_bracketed_alternatives_join_on_one_node() -> None:
    mask = mask_of_features("c&[a|(b&c)]", FEATURES, len(NODES), brackets=True)
    assert mask.tolist() == evaluated("c&(a|b)")


@pytest.mark.parametrize("text", ["[a&b]", "([a|b])", "[[a|b]]", "a)", "a(b)", "[a|b", "", "(" * 5000])
def test_refuses_what_slurm_would_reject(text: str) -> None:
    with pytest.raises(JobNotModelled):
        mask_of_features(text, FEATURES, len(NODES), brackets=True)
