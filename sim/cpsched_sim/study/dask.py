"""Cases on a Dask cluster (extra `dask`); the one door to `distributed`.

A worker decides each case in a process of its own, as this machine would: limits of time and memory hold, and a case
that crashes takes no worker with it. Where a worker dies, Dask gives its cases to another one. Traces must lie under
the same path on all machines; their digests are checked there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

from typing_extensions import override

from cpsched.errors import printable
from cpsched_sim.errors import Unusable
from cpsched_sim.processes import Died
from cpsched_sim.study.deciding import CaseOutcome
from cpsched_sim.study.running import Engine, Heard, Task

RETRIES = 3
"""How many workers may die at a case before it has failed."""
_ERRORS_SHOWN = 300


def engine(on: str, patience_s: float) -> DaskEngine:
    """The engine of an address, a scheduler file, or a function that makes a cluster. Raises `Unusable`."""
    distributed, own = _distributed(), None
    try:
        if "://" in on:
            client = distributed.Client(on, timeout="15s", set_as_default=False)
        elif on.endswith(".json"):
            client = distributed.Client(scheduler_file=str(Path(on)), timeout="15s", set_as_default=False)
        else:
            made = _made_by(on)
            own = None if isinstance(made, distributed.Client) else made
            client = made if own is None else distributed.Client(made, timeout="15s", set_as_default=False)
    except Exception as error:  # the function is somebody's own, and asks a scheduler of jobs
        if own is not None:
            own.close()
        raise Unusable(f"--on {on}: {type(error).__name__}: {error}") from error
    return DaskEngine(client, patience_s, own)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise Unusable("--on needs distributed: pip install 'cpsched[dask]'") from error
    return distributed


def _made_by(words: str) -> Any:
    """What the function of `module:function` or `file.py:function` returns."""
    made = _function(words)()
    if made is None:
        raise ValueError("the function must return a Dask cluster or a Dask client")
    return made


def _function(words: str) -> Callable[[], Any]:
    home, colon, name = words.rpartition(":")
    if not colon:
        raise ValueError("must be tcp://HOST:PORT, a scheduler file, or module:function")
    if not home.endswith(".py"):
        named: Callable[[], Any] = getattr(import_module(home), name)
        return named
    spec = spec_from_file_location("cpsched_study_cluster", home)
    if spec is None or spec.loader is None:
        raise ImportError(f"{home}: cannot be read")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[], Any] = getattr(module, name)
    return found


@dataclass(frozen=True, slots=True)
class DaskEngine(Engine):
    """A Dask cluster, by its client."""

    client: Any
    patience_s: float
    own: Any = None
    """A cluster that was made for this study alone, and ends with it."""

    @override
    def __call__(self, tasks: Mapping[int, Task], limit_s: float, heard: Heard, looked: Callable[[], None]) -> None:
        distributed = _distributed()
        path = [each for each in sys.path if each]
        bound_s = limit_s if isfinite(limit_s) else None
        study = uuid4().hex  # two tasks of one name are one task to Dask, and its scheduler serves many machines
        futures = dict[Any, int]()
        try:
            futures = {
                self.client.submit(
                    decided_apart, json.dumps(dict(task)), self.patience_s, bound_s, path,
                    key=f"cpsched-{study}-{at}", pure=False, retries=RETRIES,
                ): at
                for at, task in tasks.items()
            }  # fmt: skip
            left = set(futures)
            while left:
                try:
                    with self.client.as_current():
                        finished = distributed.wait(left, timeout=1.0, return_when="FIRST_COMPLETED").done
                except (TimeoutError, distributed.TimeoutError):
                    finished = set()
                for future in finished:
                    heard(futures[future], _outcome(future))
                    future.release()
                left -= finished
                looked()
        finally:
            try:
                self.client.cancel([future for future in futures if not future.done()], force=True)
                self.client.close()
            finally:
                if self.own is not None:
                    self.own.close()


def _outcome(future: Any) -> CaseOutcome | Died:
    if future.status != "finished":
        error = future.exception() if future.status == "error" else None
        why = f"{type(error).__name__}: {error}" if error is not None else future.status
        return CaseOutcome({"outcome": "failed", "why": printable(why[:_ERRORS_SHOWN])}, {"wall_s": 0.0})
    kind, content = future.result()
    return Died(content, late=kind == "late") if kind != "outcome" else CaseOutcome(*content)


def decided_apart(task: str, patience_s: float, limit_s: float | None, path: list[str]) -> tuple[str, Any]:
    """Decide a case in a process of its own, from a worker: ("outcome", its fields), ("late" or "died", exit code)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "cpsched_sim.study.apart", str(patience_s)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=environment, process_group=0,
    )  # fmt: skip
    try:
        said, _ = process.communicate(task.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        return "late", None
    finally:
        with suppress(ProcessLookupError):  # it and whatever it forked
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        return "died", process.returncode
    head, _, jobs = said.partition(b"\n")
    result, made = json.loads(head)
    return "outcome", (result, made, jobs or None)
