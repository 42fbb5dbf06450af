"""Find the nodes on which a job with a feature expression may run.

Slurm evaluates parentheses first, then `&` and `|` from left to right with equal precedence
(`_foreach_valid_feature_counts` in slurmctld/node_scheduler.c). All nodes of a job with `[a|b]` must share one of
the features, so on a single node `[a|b]` means `a|b`. A count such as `a*2` applies to several nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from cpsched.model import BoolArray
from cpsched_bridge.adapters.shared.job_not_modelled import JobNotModelled

_TOKEN = re.compile(r"[&|()\[\]]|[^&|()\[\]*:]+")
_CLOSING = {"(": ")", "[": "]"}


def mask_of_features(expression: str, features: Mapping[str, BoolArray], nodes: int, brackets: bool) -> BoolArray:
    """Return a mask of the nodes that satisfy an expression, bool[N].

    Raise `JobNotModelled` for counts, for brackets unless `brackets` is True, and for expressions that Slurm rejects.
    """
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != expression:
        raise _make_not_modelled_error(expression, "counts")
    if "[" in tokens and not brackets:
        raise _make_not_modelled_error(expression, "brackets, but is not limited to one node")
    none = np.zeros(nodes, np.bool_)

    def parse_group_mask(rest: Iterator[str], opening: str) -> BoolArray:
        mask = parse_operand_mask(rest, opening)
        while (sign := next(rest, "")) != _CLOSING.get(opening, ""):
            if sign not in ("|", "&") or (sign == "&" and opening == "["):
                raise _make_not_modelled_error(expression, "unsupported syntax")
            other = parse_operand_mask(rest, opening)
            mask = mask | other if sign == "|" else mask & other
        return mask

    def parse_operand_mask(rest: Iterator[str], opening: str) -> BoolArray:
        token = next(rest, "")
        if token and token not in "&|()[]":
            return features.get(token, none)
        if (token == "(" and opening != "(") or (token == "[" and not opening):
            return parse_group_mask(rest, token)
        raise _make_not_modelled_error(expression, "unsupported syntax")

    return parse_group_mask(iter(tokens), "")


def _make_not_modelled_error(expression: str, what: str) -> JobNotModelled:
    return JobNotModelled(f"requests features with {what}", f"requests features {expression!r} with {what}")
