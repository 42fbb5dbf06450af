"""Kernels whose subroutines are compiled only as parts of them: the same results, and no effect on other functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import pytest
from numba import types

from cpsched.jit import compiled_functions
from cpsched.jit.decorators import subroutine

njit = cast(Any, numba.njit)


def a_door() -> tuple[Callable[..., Any], compiled_functions.CompiledSubroutine]:
    """A function that makes an array and may fail in its helper, which has a helper of its own; and that helper."""

    @subroutine
    def is_bad(value: int) -> bool:
        return value < 0

    @subroutine
    def checked(value: int) -> int:
        if is_bad(value):
            raise ValueError("below zero", value)
        return value

    def filled(value: int) -> Any:
        column = np.zeros(3, np.int64)
        column[1:] = checked(value)
        return column.copy()

    return filled, cast(compiled_functions.CompiledSubroutine, checked)


def check(compiled: Callable[..., Any]) -> None:
    assert compiled(7).tolist() == [0, 7, 7]
    with pytest.raises(ValueError, match="below zero") as failed:
        compiled(-1)
    assert failed.value.args == ("below zero", -1)


def only_where_linking_is_ours() -> None:
    if not numba.__version__.startswith(compiled_functions.TESTED_NUMBA_RELEASES):
        pytest.skip(f"Numba {numba.__version__} is not in KNOWN_TO_WORK: cold starts take twice as long")


@pytest.mark.parametrize("known", [compiled_functions.TESTED_NUMBA_RELEASES, ("none",)], ids=["ours", "ordinary"])
def test_new_and_cached_kernel_give_same_result(
    known: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if known == compiled_functions.TESTED_NUMBA_RELEASES:
        only_where_linking_is_ours()
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled_functions, "TESTED_NUMBA_RELEASES", known)
    for _ in range(2):
        check(compiled_functions.compile_for_types(a_door()[0], (types.int64,)))
    assert len(list(tmp_path.iterdir())) == 1


def test_helpers_have_no_separate_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_where_linking_is_ours()
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    function, helper = a_door()
    compiled_functions.compile_for_types(function, (types.int64,))
    (made,) = helper.dispatcher.overloads.values()
    assert type(made.library).__name__ == "SubroutineCodeLibrary"
    written = [each.name for each in made.library.own_code_for_linking().functions if not each.is_declaration]
    assert written, "its own code"
    assert not [name for name in written if "is_bad" in name], "the kernel links each function once"


def test_ordinary_functions_share_helpers_with_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPSCHED_CACHE_DIR", str(tmp_path))
    function, helper = a_door()
    compiled_functions.compile_for_types(function, (types.int64,))

    @njit
    def ordinary(value: int) -> Any:
        return np.zeros(3, np.int64) + helper(value)

    assert ordinary(4).tolist() == [4, 4, 4]
    assert type(next(iter(ordinary.overloads.values())).library).__name__ != "SubroutineCodeLibrary"


def test_collects_compiler_options_like_numba() -> None:
    only_where_linking_is_ours()
    from numba.core.compiler import Flags

    from cpsched.jit import kernel_linking

    flags = cast(Any, Flags)()
    assert kernel_linking.compiler_option_values(flags) == flags.values()
    flags.nrt, flags.error_model = True, "numpy"
    assert kernel_linking.compiler_option_values(flags) == flags.values()
    assert list(kernel_linking.compiler_option_values(flags)) == list(flags.values())
