"""What Numba looks up again and again while a door compiles, looked up once.

- The options of the compiler, which are a part of each key: gathered one by one, 85,000 times for `plan_placed`.
- The signature of a call. For `a + b` Numba tries all meanings of `+` until one fits, among them those for strings,
  sets and dates, and writes an error message for each that does not. It is the same search for each two integers.

`cpsched.compile.linking` puts these functions in the place of Numba's as long as a door compiles.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba has no types of its own.

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba.core.targetconfig import ConfigStack, TargetConfig


def gathered(flags: TargetConfig) -> dict[str, Any]:
    """What `TargetConfig.values` returns: the value of each option, by name."""
    return _defaults(type(flags)) | flags._values


@cache
def _defaults(kind: type[TargetConfig]) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def remembering(search: Callable[..., Any]) -> Callable[..., Any]:
    """`BaseFunction.get_call_type`, whose answer is `search`'s the first time and remembered from then on.

    It depends on the options too. Numba finds the code of the call under the signature's arguments in `_impl_keys`.
    A call that fits nowhere is not remembered, nor is one with arguments by name.
    """
    found: dict[Any, tuple[Any, Any]] = {}
    numbers: dict[Any, int] = {}
    numbered: dict[int, tuple[Any, int]] = {}

    def number_of(options: Any) -> int:
        """The same number for equal options, which are compared once for each function."""
        if id(options) not in numbered:
            numbered[id(options)] = options, numbers.setdefault(options, len(numbers))
        return numbered[id(options)][1]

    def get_call_type(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        if named:
            return search(function, context, arguments, named)
        asked = (function, context, tuple(arguments), number_of(ConfigStack.top_or_none()))
        if asked in found:
            signature, function._impl_keys[signature.args] = found[asked]
            return signature
        signature = search(function, context, arguments, named)
        found[asked] = signature, function._impl_keys[signature.args]
        return signature

    return get_call_type
