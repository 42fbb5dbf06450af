"""Count the objects that an object references through any attribute, for tests that nothing grows without bound."""

from __future__ import annotations

import gc
from collections import deque
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np

_NOT_OURS = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)
_CONTAINERS = (dict, list, set, frozenset, tuple, deque, MappingProxyType)


def entries(thing: Any) -> int:
    """Return the total number of entries of containers and arrays reachable from `thing`.

    Code and module contents are excluded.
    """
    seen: set[int] = set()
    kept, todo, count = [], [thing], 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, _NOT_OURS):
            continue
        seen.add(id(each))
        kept.append(each)  # so that no other object gets its id meanwhile
        if isinstance(each, np.ndarray):
            count += each.size
        elif isinstance(each, _CONTAINERS):
            count += len(each)
        todo += gc.get_referents(each)
    return count
