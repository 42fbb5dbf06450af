"""Run cases whose results are stored in a folder. Equal keys mean equal inputs and equal code."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from cpsched.errors import CpschedError
from cpsched.policy_spec import PolicySpec
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.errors import SimulationError
from cpsched_sim.experiments.task_runner import Fractions, TaskExecutor, TaskFailure, Work, run_tasks
from cpsched_sim.file_io import file_sha256, write_atomically

OWN_PACKAGES = ("cpsched", "cpsched_sim")
LIBRARIES = ("ortools",)
"""Libraries whose versions may affect decisions."""
MAX_UNUSED_DAYS = 60
"""Number of days after which a cache deletes unused results."""


class Case(NamedTuple):
    """A replay to run: the key of its result, and its input for a worker process."""

    key: str
    task: Any


class ResultFormat(NamedTuple):
    """The form in which results are stored. `decode` may raise any exception for damaged content."""

    suffix: str
    encode: Callable[[Any], bytes] | None
    """None if the process that runs a case writes the file."""
    decode: Callable[[bytes], Any]


@dataclass(slots=True)
class CaseStore:
    """The results of cases in a folder, one file per case. Without a folder, nothing is stored.

    A later run, or a run resumed after Ctrl-C, finds the results of an earlier one. A store that is only a cache
    ignores write errors.
    """

    folder: Path | None
    format: ResultFormat
    is_cache: bool = False
    found: int = 0
    """Number of results that were found."""

    def path(self, key: str) -> Path:
        """Return the path of a result."""
        assert self.folder is not None
        return self.folder / f"{key}{self.format.suffix}"

    def stored_keys(self) -> list[str]:
        """Return the keys of all stored results, sorted."""
        if self.folder is None:
            return []
        folder, suffix = self.folder, self.format.suffix
        return sorted(path.relative_to(folder).as_posix().removesuffix(suffix) for path in folder.glob(f"*{suffix}"))

    def find(self, key: str) -> Any:
        """Return a stored result, or None if it is missing or damaged."""
        if self.folder is None:
            return None
        try:
            result = self.format.decode(self.path(key).read_bytes())
            if self.is_cache:
                self.path(key).touch()  # marks the result as used
        except Exception:  # damaged content can raise any exception; the case then runs again
            return None
        self.found += 1
        return result

    def store(self, key: str, result: Any) -> None:
        """Store a result, but no failure. Raise `InputError` if it cannot be written."""
        if self.folder is None or self.format.encode is None or isinstance(result, TaskFailure):
            return
        with suppress(*([SimulationError] if self.is_cache else ())):
            write_atomically(self.path(key), self.format.encode(result))

    def delete_unused(self) -> None:
        """Delete results that have not been used for `MAX_UNUSED_DAYS`."""
        with suppress(OSError):
            for path in map(self.path, self.stored_keys()):
                if time.time() - path.stat().st_mtime > 86_400 * MAX_UNUSED_DAYS:
                    path.unlink(missing_ok=True)


@dataclass(slots=True)
class CaseRunner:
    """Run cases in processes, each at most once. Compare, study, tune and what-if all run their replays with it."""

    work: Work
    engine: TaskExecutor
    store: CaseStore
    to_result: Callable[[Case, Any], Any] = lambda case, result: result
    """Convert what a process returned, or its `TaskFailure`, into the result to store."""

    def find_results(self, cases: Sequence[Case]) -> dict[int, Any]:
        """Return the stored results by index in `cases`."""
        found = ((at, self.store.find(case.key)) for at, case in enumerate(cases))
        return {at: result for at, result in found if result is not None}

    def run(
        self, cases: Sequence[Case], progress: Fractions | None = None, results: dict[int, Any] | None = None
    ) -> list[Any]:
        """Return each case's result, or a `TaskFailure`. Run those without a result, and store each immediately.

        `results` contains the results that the caller has already found. Each further result is added to it, so that
        the caller has them even after an interruption.
        """
        results = self.find_results(cases) if results is None else results
        tasks = {at: case.task for at, case in enumerate(cases) if at not in results}

        def on_result(at: int, returned: Any) -> None:
            result = self.to_result(cases[at], returned)
            self.store.store(cases[at].key, result)
            results[at] = result

        stored = len(results)

        def count_stored_results(done: float, total: int) -> None:
            if progress is not None:
                progress(stored + done, stored + total)

        run_tasks(self.work, tasks, self.engine, on_result, count_stored_results)
        return [results[at] for at in range(len(cases))]


def compute_result_key(inputs: Mapping[str, Any]) -> str:
    """Return the key for these inputs: 32 hexadecimal digits of their digest."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def code_identity(spec: PolicySpec) -> dict[str, Any]:
    """Return the identity of the code that a policy runs."""
    return {"code": code_digest(), "plugins": sorted(plugin_digests(spec.dispatcher, spec.predictor).values())}


@cache
def code_digest() -> str:
    """Return a digest of the simulator's source files and of library versions.

    The libraries are `LIBRARIES`. The project's own version is excluded, because it may differ between an editable
    install and a wheel of the same sources.
    """
    releases = [f"{name} {installed_version(name)}" for name in LIBRARIES]
    files = [file_sha256(path) for name in OWN_PACKAGES for path in module_source_files(name)]
    return hashlib.sha256("\n".join([*releases, *files]).encode()).hexdigest()


def plugin_digests(dispatcher: str, predictor: str) -> dict[str, str]:
    """Return the digests of the plug-ins' source files by path.

    Unknown names have no files.
    """
    found = dict[str, str]()
    for catalogue, words in (
        (SIMULATION_REGISTRIES.dispatchers, dispatcher),
        (SIMULATION_REGISTRIES.predictors, predictor),
    ):
        with suppress(CpschedError):
            factory = catalogue.find(words).factory
            found |= plugin_file_digests(getattr(factory, "__module__", "") or type(factory).__module__)
    return found


def plugin_file_digests(module: str) -> dict[str, str]:
    """Return the digests of a plug-in's source files by path.

    Return {} for a module of this project.
    """
    if module.partition(".")[0] in OWN_PACKAGES:
        return {}
    return {str(path): file_sha256(path) for path in module_source_files(module)}


def module_source_files(module: str) -> list[Path]:
    """Return the source files in a module's package.

    For a module without a package, return the file. Outside site-packages, add sibling modules and packages.
    """
    found = find_spec(module.partition(".")[0])
    if found is None:
        return []
    if found.submodule_search_locations is not None:
        return sorted(path for folder in found.submodule_search_locations for path in Path(folder).rglob("*.py"))
    path = Path(found.origin or "")
    if path.suffix != ".py":
        return []
    if "site-packages" in path.parts:
        return [path]
    siblings = (init.parent.rglob("*.py") for init in path.parent.glob("*/__init__.py"))
    return sorted({*path.parent.glob("*.py"), *(each for package in siblings for each in package)})


def installed_version(name: str) -> str:
    """Return the installed version of a library, or `none`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
