"""Lookups that are cached while kernels compile equal Numba's own."""

from __future__ import annotations

from typing import Any

import pytest
from numba import types
from numba.core.compiler import Flags
from numba.core.targetconfig import ConfigStack

from cpsched.jit.kernel_linking import make_cached_get_call_type

PAIR = (types.int64, types.int64)


class Searched:
    """A function of Numba's: whatever is not text fits, under a signature and a code of its own each time."""

    def __init__(self) -> None:
        self._impl_keys: dict[Any, Any] = {}
        self.searches = 0

    def get_call_type(self, context: Any, arguments: Any, named: Any) -> Any:
        self.searches += 1
        if types.unicode_type in arguments:
            raise TypeError("fits nowhere")
        signature = types.float64(*arguments)
        self._impl_keys[signature.args] = self.searches
        return signature

    @property
    def codes(self) -> dict[Any, Any]:
        """Where Numba finds the code of a call, by the types of its arguments."""
        return self._impl_keys


@pytest.fixture
def searched() -> Searched:
    return Searched()


@pytest.fixture
def call_type() -> Any:
    return make_cached_get_call_type(Searched.get_call_type)


def test_caches_repeated_lookup(searched, call_type):
    first = call_type(searched, "context", PAIR, {})
    searched.codes[PAIR] = "of another call"
    assert call_type(searched, "context", list(PAIR), {}) is first
    assert (searched.searches, searched.codes) == (1, {PAIR: 1})


def strict() -> Flags:
    flags = Flags()
    flags.error_model = "numpy"
    return flags


@pytest.mark.parametrize(
    ("context", "arguments", "named", "flags", "searches"),
    [
        ("context", PAIR, {}, Flags(), 1),
        ("other", PAIR, {}, Flags(), 2),
        ("context", (types.int64, types.float64), {}, Flags(), 2),
        ("context", PAIR, {"axis": types.int64}, Flags(), 3),  # not cached
        ("context", PAIR, {}, strict(), 2),
    ],
)
def test_different_call_has_its_own_lookup(searched, call_type, context, arguments, named, flags, searches):
    for call, options in (((context, arguments, named), flags), (("context", PAIR, {}), Flags())) * 2:
        with ConfigStack().enter(options):
            call_type(searched, *call)
    assert searched.searches == searches


def test_different_function_has_its_own_lookup(searched, call_type):
    other = Searched()
    for function in (searched, other):
        call_type(function, "context", PAIR, {})
    assert (searched.searches, other.searches) == (1, 1)


def test_failed_lookup_is_not_cached(searched, call_type):
    for _ in range(2):
        with pytest.raises(TypeError, match="fits nowhere"):
            call_type(searched, "context", (types.unicode_type,), {})
    assert searched.searches == 2
