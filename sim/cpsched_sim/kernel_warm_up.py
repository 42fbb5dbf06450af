"""Show the progress of compiling kernels, and compile all kernels in advance."""

from __future__ import annotations

import importlib
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cpsched.formatting import format_count
from cpsched.jit import compile_progress

_HEADING = "compiling kernels, once for this machine; later runs load them from the cache"


class CompileProgressLine:
    """A progress line on stderr.

    On a terminal, each step rewrites the line. Otherwise, one line is printed per kernel.
    """

    def __init__(self) -> None:
        self._said_heading = False

    def __call__(self, name: str, done: int, total: int) -> None:
        """Show that `done` of a kernel's `total` functions are compiled.

        Until all are compiled, Ctrl-C ends the process immediately.
        """
        _let_interrupt_end_process(done < total)
        if not self._said_heading:
            self._said_heading = True
            print(_HEADING, file=sys.stderr, flush=True)
        # A progress bar replaces `sys.stderr` with a stream that accepts only whole lines.
        if sys.stderr is sys.__stderr__ and sys.stderr is not None and sys.stderr.isatty():
            shown = f"  {name}: {done} of {format_count(total, 'function')}" if done < total else ""
            print(f"\x1b[?25h\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)
        elif done == 0:
            print(f"  {name}: {format_count(total, 'function')}", file=sys.stderr, flush=True)


def _let_interrupt_end_process(at_once: bool) -> None:
    """If `at_once`, let Ctrl-C end this process immediately.

    Otherwise, Python handles it after LLVM returns.
    """
    if threading.current_thread() is threading.main_thread():
        ours = (signal.default_int_handler, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) == ours[not at_once]:  # only if no other signal handler is installed
            signal.signal(signal.SIGINT, ours[at_once])


def show_compile_progress() -> None:
    """Show the progress of all kernel compilations in this process."""
    compile_progress.set_progress_callback(CompileProgressLine())


@dataclass(frozen=True, slots=True)
class KernelWarmUpResult:
    """The result of a warm-up."""

    folders: tuple[str, ...]
    """Folders that contain the compiled kernels."""
    found: int
    made: int
    lost: int
    """Number of compiled kernels that could not be stored in the cache."""
    seconds: float
    cpu_s: float

    def __str__(self) -> str:
        where = " and ".join(self.folders) or "memory alone"
        took = f", in {self.seconds:.0f} s ({self.cpu_s:.0f} s CPU)" if self.made else ""
        return f"{format_count(self.found + self.made, 'kernel')} in {where}: {self.made} compiled now, {self.found} found{took}"  # noqa: E501


def warm_up_kernels() -> KernelWarmUpResult:
    """Compile every kernel of the core and the simulator, or load it from the cache."""
    from cpsched.jit.kernel_cache import CACHE_LOCATIONS

    began, cpu_began = time.monotonic(), time.process_time()
    for opened in all_kernel_loaders():
        opened()
    filed = CACHE_LOCATIONS.values()
    return KernelWarmUpResult(
        folders=tuple(sorted({str(each.folder) for each in filed if each.folder})),
        found=sum(not each.new for each in filed),
        made=sum(each.new for each in filed),
        lost=sum(each.folder is None for each in filed),
        seconds=time.monotonic() - began,
        cpu_s=time.process_time() - cpu_began,
    )


def all_kernel_loaders() -> list[Callable[[], object]]:
    """Return for each kernel a function that compiles it or loads it from the cache."""
    import_all_kernel_modules()
    return registered_kernel_loaders()


def registered_kernel_loaders() -> list[Callable[[], object]]:
    """Return the kernel loaders of all imported modules, including a policy's modules."""
    from cpsched.jit.compiled_functions import KERNELS

    return [kernel.load_or_compile for kernel in KERNELS]


def load_registered_kernels(tell: Callable[[str], None]) -> None:
    """Compile the kernels of the modules imported so far, or load them from the cache.

    Call `tell` with a progress message before each kernel and after each compiled function. Restore the previous
    progress callback afterwards.
    """
    waiting = registered_kernel_loaders()
    before = compile_progress.current_progress_callback()
    try:
        for at, opened in enumerate(waiting):
            text = f"{at} of {format_count(len(waiting), 'kernel is', 'kernels are')} ready"
            tell(f"loads kernels: {text}")
            compile_progress.set_progress_callback(partial(_report_compiled_function, tell, text))
            opened()
    finally:
        compile_progress.set_progress_callback(before)


def _report_compiled_function(tell: Callable[[str], None], text: str, name: str, done: int, total: int) -> None:
    tell(f"compiles kernels: {text}; {name}: {done} of {format_count(total, 'function')}")


def modules_with_kernels() -> tuple[str, ...]:
    """Return the names of imported modules with kernels, for use in another process."""
    from cpsched.jit.compiled_functions import KERNELS

    return tuple(sorted({kernel.py_func.__module__ for kernel in KERNELS}))


def import_all_kernel_modules() -> None:
    """Import every module of the core and the simulator to register all kernels.

    Skip modules that require a missing package, such as pytest, because they have no kernels.
    """
    for name in ("cpsched", "cpsched_sim"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in ("cpsched", "cpsched_sim"):
                    raise
