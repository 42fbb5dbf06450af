"""What commands say on stderr while kernels are compiled, and the command that compiles all of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cpsched import _compiling

_HEADING = "compiling kernels, once for this machine; later runs find them in the cache"


class Display:
    """One line on a terminal, rewritten at every step; plain lines, one for each door, elsewhere."""

    def __init__(self) -> None:
        self._said_heading = False

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of the `total` functions of a door are compiled."""
        if not self._said_heading:
            self._said_heading = True
            print(_HEADING, file=sys.stderr, flush=True)
        # While a progress bar is drawn, `sys.stderr` is the bar's own, which knows whole lines only.
        if sys.stderr is sys.__stderr__ and sys.stderr is not None and sys.stderr.isatty():
            shown = f"  {name}: {done} of {total} functions" if done < total else ""
            print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)
        elif done == 0:
            print(f"  {name}: {total} functions", file=sys.stderr, flush=True)


def show() -> None:
    """Have this process show the progress of whatever it compiles."""
    _compiling.watch(Display())


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What there is after all doors were opened."""

    folders: tuple[str, ...]
    """Where the compiled doors are."""
    found: int
    made: int
    lost: int
    """How many of those made could not be kept."""
    seconds: float
    cpu_s: float

    def __str__(self) -> str:
        where = " and ".join(self.folders) or "memory alone"
        took = f", in {self.seconds:.0f} s ({self.cpu_s:.0f} s CPU)" if self.made else ""
        return f"{self.found + self.made} kernels in {where}: {self.made} compiled now, {self.found} found{took}"


def warm_up() -> WarmUp:
    """Compile, or find in the cache, every kernel of the core and of the simulator."""
    from cpsched._cache import FILED

    began, cpu_began = time.monotonic(), time.process_time()
    for opened in every_opener():
        opened()
    filed = FILED.values()
    return WarmUp(
        folders=tuple(sorted({str(each.folder) for each in filed if each.folder})),
        found=sum(not each.new for each in filed),
        made=sum(each.new for each in filed),
        lost=sum(each.folder is None for each in filed),
        seconds=time.monotonic() - began,
        cpu_s=time.process_time() - cpu_began,
    )


def every_opener() -> list[Callable[[], object]]:
    """A function for each door, and for each class of handles, that compiles it or finds it in the cache."""
    every_module_with_doors()
    from cpsched._jit import DOORS
    from cpsched.handles import Handle
    from cpsched.kernels import structs

    return [*(door.opened for door in DOORS), *(partial(structs.ready, cls) for cls in Handle.__subclasses__())]


def every_module_with_doors() -> None:
    """Import every module of the core and of the simulator: those with doors register them.

    A module that wants an extra which is not installed (pytest, say) has no doors and is passed over.
    """
    for name in ("cpsched", "cpsched_sim"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in ("cpsched", "cpsched_sim"):
                    raise
