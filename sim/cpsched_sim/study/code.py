"""Digests of the code that a replay runs through: its dispatcher and predictor, and the simulator that all share.

A digest is of the source of a module and of every module that it imports, as far as these are the project's, or of the
plug-in's own package. Comments and docstrings do not count. Of the shared part only what is imported when a module is
loaded counts, so that an edited dispatcher changes its own digest and no other's; so it is with readers of traces.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from cpsched.catalogue import Catalogue, Catalogues
from cpsched_sim.study.bare import bare

SHARED = (
    "cpsched_sim.experiment", "cpsched_sim.workloads.eurora", "cpsched_sim.tuning.windows",
    "cpsched_sim.study.deciding",
)  # fmt: skip
"""The modules that turn a case into figures."""
OWN = ("cpsched", "cpsched_sim")
TELLING = (
    "cpsched.formatting", "cpsched.markup", "cpsched_sim.document", "cpsched_sim.frames", "cpsched_sim.fresh",
    "cpsched_sim.hints", "cpsched_sim.recorded_schedule", "cpsched_sim.results",
)  # fmt: skip
"""Imported by the shared part, and without influence on any figure: how results are shown and written."""
READERS = ("cpsched_sim.traces.pbs", "cpsched_sim.traces.sacct", "cpsched_sim.traces.swf")
"""Imported by the shared part, and asked for traces of their own formats alone: see `code_of_reader`."""
COUNTED = ("ortools",)
"""Libraries whose version may change a decision."""


def code_of(dispatcher: str, predictor: str, known: Catalogues) -> str:
    """The digest of all that decides: of a dispatcher, a predictor, and what every replay shares."""
    files, libraries, _ = _beyond_shared(_home(known.dispatchers, dispatcher), _home(known.predictors, predictor))
    return _digest(files, libraries)


def code_of_reader(home: str) -> str:
    """The digest of a module that reads a trace, and of what it imports beyond the shared part."""
    files, _, shared = _beyond_shared(home)
    return _digest({name: path for name, path in files.items() if name not in shared}, ())


def code_of_plugin(home: str) -> str:
    """The digest of a plug-in's module and of all that it imports of its own package or from beside it."""
    own, files = _beside(home), dict[str, Path]()
    _follow(home, True, lambda top: own(top) and not _is_own(top), files, set(), ())
    return _digest(files, ())


def _beyond_shared(*homes: str) -> tuple[dict[str, Path], set[str], frozenset[str]]:
    """As `shared_files`, with these modules and what they import added to files and libraries."""
    files, libraries, shared = shared_files()
    for home in homes:
        _follow(home, True, _beside(home), files, libraries, {*shared, *TELLING})
    return files, libraries, shared


def shared_files() -> tuple[dict[str, Path], set[str], frozenset[str]]:
    """Files by module and libraries of the shared part, to which others may be added; and its modules."""
    files: dict[str, Path] = {}
    libraries: set[str] = set()
    for module in SHARED:
        _follow(module, False, _is_own, files, libraries, (*TELLING, *READERS))
    return files, libraries, frozenset(files)


def _digest(files: Mapping[str, Path], libraries: Collection[str]) -> str:
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(name.encode() + b"\0" + bare(files[name]) + b"\0")
    for library in sorted(libraries):
        found.update(f"{library} {_version(library)}".encode())
    return found.hexdigest()


def _home(catalogue: Catalogue[Any], words: str) -> str:
    """The module in which a dispatcher or a predictor is written down."""
    if ":" not in words:
        for package in catalogue.packages:
            for module in iter_modules(import_module(package).__path__):
                name = f"{package}.{module.name}"
                if not module.ispkg and any(each.name == words for each in getattr(import_module(name), "LISTED", ())):
                    return name
        factory = catalogue.find(words).factory
        home: str = getattr(factory, "__module__", "") or type(factory).__module__
        return home
    return words.partition(":")[0]


def _follow(
    module: str,
    lazily: bool,
    counts: Callable[[str], bool],
    files: dict[str, Path],
    libraries: set[str],
    known: Collection[str],
) -> None:
    """Add a module and all that it imports, as far as it `counts`; `lazily`: what its functions import, too.

    Of what is `known`, nothing but `module` itself is looked into.
    """
    todo, seen = [module], {*known} - {module}
    while todo:
        name = todo.pop()
        path = _source_of(name) if name not in seen else None
        seen.add(name)
        if path is None:
            continue
        files[name] = path
        for imported in _imports(name, path, lazily, path.stat().st_mtime_ns):
            if (top := imported.partition(".")[0]) in COUNTED:
                libraries.add(top)
            if counts(top):
                todo += _parents(imported)


def _is_own(top: str) -> bool:
    return top in OWN


def _beside(home: str) -> Callable[[str], bool]:
    """Whether a package or module is of the project, the plug-in's own, or a file beside it that nobody installed."""
    own = home.partition(".")[0]
    folder = _folder_of(own)

    def counts(top: str) -> bool:
        return top in (*OWN, own) or (folder is not None and _folder_of(top) == folder)

    return counts


def _folder_of(top: str) -> Path | None:
    """Where a package or a module lies; None where it is installed, or part of Python."""
    path = _source_of(top)
    if path is None or path.is_relative_to(sysconfig.get_path("stdlib")) or "site-packages" in path.parts:
        return None
    return path.parents[1] if path.name == "__init__.py" else path.parent


def _parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def _source_of(name: str) -> Path | None:
    """The file of a module; None for what is no module, or has no source."""
    return _source_on(name, tuple(sys.path))


@cache
def _source_on(name: str, _: tuple[str, ...]) -> Path | None:
    """Look again for each path of imports: another one may have another module of that name."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


@cache
def _imports(module: str, path: Path, lazily: bool, changed_ns: int) -> frozenset[str]:
    """What a module imports: names of modules, and names that may be modules. Read again after each change."""
    tree = ast.parse(path.read_bytes())
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree) if lazily else tree.body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return frozenset(found)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
