"""How doors compile in half the time that Numba takes by itself: helpers become machine code only as parts of doors.

Numba optimises every function that it meets, and makes machine code of it, before it does both again with the door
that the function is a part of. Only the door is ever called from Python, so the first time is wasted. Here the
functions below a door stay as the front end left them, and are optimised and turned into machine code with the door.

That rests on a few inner names of Numba. So this module is imported only with the versions of Numba that
`cpsched._jit` names; with others doors are compiled in Numba's ordinary way, which takes longer.
"""

# mypy: disable-error-code="no-untyped-call"
# Numba has no types of its own.

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding
from numba.core import codegen, compiler


class Linked(codegen.JITCodeLibrary):
    """The code of a function below a door, which no one calls but the door's own code."""

    def _optimize_final_module(self) -> None:
        """The door is optimised, with this in it."""

    def _finalize_final_module(self) -> None:
        """Make no machine code.

        Numba notes down the address of the function's environment (its constants) in a global variable, which the
        door's code reads. So that this variable exists, it alone is handed to the linker.
        """
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        names = [each.name for each in self._final_module.global_variables if each.linkage == binding.Linkage.common]
        alone = "\n".join(f'@"{name}" = common global i8* null' for name in names)
        self._codegen._add_module(binding.parse_assembly(alone))
        self._finalized = True


class DoorCompiler(compiler.Compiler):
    """Numba's steps for one door; this is entered only where the door is not in the cache."""

    def compile_extra(self, function: Any) -> Any:
        """The compiled door, and the functions below it within."""
        maker = self.state.targetctx.codegen()
        self.state.library = maker.create_library(function.__qualname__)
        self.state.library.enable_object_caching()
        with _below_a_door(maker):
            return super().compile_extra(function)


@contextmanager
def _below_a_door(maker: Any) -> Iterator[None]:
    """All functions that are compiled meanwhile are a part of the door under way."""
    ordinary, maker._library_class = maker._library_class, Linked
    try:
        yield
    finally:
        maker._library_class = ordinary
