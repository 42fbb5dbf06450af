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
        raise _not_modelled(expression, "counts")
    if "[" in tokens and not brackets:
        raise _not_modelled(expression, "brackets, but is not limited to one node")
    none = np.zeros(nodes, np.bool_)

    def read_group(rest: Iterator[str], opening: str) -> BoolArray:
        mask = read_operand(rest, opening)
        while (sign := next(rest, "")) != _CLOSING.get(opening, ""):
            if sign not in ("|", "&") or (sign == "&" and opening == "["):
                raise _not_modelled(expression, "unsupported syntax")
            other = read_operand(rest, opening)
            mask = mask | other if sign == "|" else mask & other
        return mask

    def read_operand(rest: Iterator[str], opening: str) -> BoolArray:
        token = next(rest, "")
        if token and token not in "&|()[]":
            return features.get(token, none)
        if (token == "(" and opening != "(") or (token == "[" and not opening):
            return read_group(rest, token)
        raise _not_modelled(expression, "unsupported syntax")

    return read_group(iter(tokens), "")


def _not_modelled(expression: str, what: str) -> JobNotModelled:
    return JobNotModelled(f"requests features with {what}", f"requests features {expression!r} with {what}")
