"""The cache of compiled kernels: one file for each version of a kernel.

A file is named after a digest of everything that the kernel's code depends on.

Cache files are looked up in these directories, in this order:

1. `CPSCHED_CACHE_DIR`; if it is set, no other directory is used. Otherwise, `NUMBA_CACHE_DIR`;
2. `__pycache__/kernels` in the installed package, so that all users of a shared installation can use the files;
3. the user's own directory: `$XDG_CACHE_HOME/cpsched`, or `~/.cache/cpsched`.

A new file is written to the first writable directory. Cache files are programs, so a directory is skipped if other
users may write to it. It must belong to the current user, root or the owner of the installation.

Numba's own cache is not used, because it ignores directories that are not writable. It also trusts the timestamps of
source files, which change when an installation is copied.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import environ, geteuid
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from cpsched.jit.compile_progress import log_once

MAX_CACHED_VERSIONS = 8
"""Maximum number of files per kernel in a directory. There is one file per source version and processor type."""

SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS")
"""The Numba settings that change the generated code. Environment variables such as `NUMBA_OPT` set them."""

_log = logging.getLogger("cpsched")


def kernel_cache_directories() -> list[Path]:
    """Return the directories to search, in order."""
    if own := environ.get("CPSCHED_CACHE_DIR"):
        return [Path(own)]
    numba_s, home, user = (environ.get(name) for name in ("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME"))
    found = [Path(numba_s)] if numba_s else []
    found.append(_installation_cache_directory())
    if user or home:
        found.append((Path(user) if user else Path(f"{home}/.cache")) / "cpsched")
    return found


def why_directory_untrusted(folder: Path) -> str | None:
    """Return why a directory is not trusted, or None if it is safe or missing."""
    try:
        state, install = folder.stat(), _core_directory().stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    if state.st_uid not in (0, geteuid(), install.st_uid):
        return f"{folder} belongs to user {state.st_uid}"
    if state.st_mode & 0o022 & ~(install.st_mode if folder == _installation_cache_directory() else 0):
        return f"{folder} is writable by other users (mode {state.st_mode & 0o777:03o})"
    return None


def _trusted_directories() -> Iterator[Path]:
    """Yield the trusted directories to search. Log each untrusted directory once."""
    for folder in kernel_cache_directories():
        if why := why_directory_untrusted(folder):
            log_once(f"the kernel cache is ignored: {why}. Make it writable only by you, or set CPSCHED_CACHE_DIR")
        else:
            yield folder


def _core_directory() -> Path:
    """Return the directory in which the core is installed."""
    return Path(__file__).parent.parent


def _installation_cache_directory() -> Path:
    """Return the cache directory of the installation."""
    return _core_directory() / "__pycache__" / "kernels"


@dataclass(frozen=True, slots=True)
class KernelCacheLocation:
    """The place where a compiled kernel is stored: a directory, or only memory (None)."""

    folder: Path | None
    new: bool
    """Whether this process compiled it."""


CACHE_LOCATIONS: dict[str, KernelCacheLocation] = {}
"""Locations of the kernels that this process has loaded, by file name."""


class KernelCache:
    """The cache files of one kernel, with the interface that Numba expects."""

    def __init__(self, name: str, made_from: str, on_miss: Callable[[], None]) -> None:
        """Create a cache for code with the digest `made_from`. A miss calls `on_miss`."""
        self._name, self._made_from, self._on_miss = name.replace("<locals>.", ""), made_from, on_miss
        self.cache_path = str(kernel_cache_directories()[0])  # Numba shows this in its statistics

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled code, or None if the file is missing or damaged."""
        from numba.core.compiler import CompileResult

        target.refresh()
        file = self._cache_file_name(signature, target.codegen())
        for folder in _trusted_directories():
            try:
                found = cast(Any, CompileResult)._rebuild(target, *pickle.loads(_read_checked_file(folder / file)))
            except FileNotFoundError:
                continue
            except Exception as error:  # compile the kernel if its file is unusable for any reason
                _log.info("%s is not used: %s", folder / file, error)
                continue
            CACHE_LOCATIONS[file] = KernelCacheLocation(folder, new=False)
            return found
        self._on_miss()
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write the code to the first writable directory."""
        from numba.core import serialize

        content = cast(Any, serialize).dumps(compiled._reduce())
        file = self._cache_file_name(signature, compiled.library.codegen)
        for folder in _trusted_directories():
            try:
                _write_atomically(folder / file, content)
            except OSError:
                continue
            _remove_old_files(folder, self._name)
            CACHE_LOCATIONS[file] = KernelCacheLocation(folder, new=True)
            return
        CACHE_LOCATIONS[file] = KernelCacheLocation(None, new=True)
        tried = " or ".join(map(str, kernel_cache_directories()))
        log_once(
            f"compiled kernels cannot be stored, so each run compiles them again: cannot write to {tried}. "
            "Ask the owner of the installation to run `cpsched warm-up`, or set CPSCHED_CACHE_DIR to your own directory"
        )

    def _cache_file_name(self, signature: Any, codegen: Any) -> str:
        """Return the file name, which depends on sources, types, compiler and processor."""
        import llvmlite
        import numba
        import numpy as np

        made_by = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__, np.__version__)
        how = [str(getattr(numba.config, name, None)) for name in SETTINGS]
        key = repr((self._made_from, _type_to_text(signature), made_by, how, codegen.magic_tuple()))
        return f"{self._name}.{hashlib.sha256(key.encode()).hexdigest()[:24]}.bin"


def _type_to_text(kind: Any) -> str:
    """Return a type, constant or tuple as text, with record fields in compiled order."""
    if isinstance(kind, tuple):
        return f"({', '.join(map(_type_to_text, kind))})"
    if hasattr(kind, "field_dict"):
        return f"{kind}({', '.join(f'{name}: {_type_to_text(field)}' for name, field in kind.field_dict.items())})"
    return f"{kind}{getattr(kind, 'fields', '')}"


def _read_checked_file(file: Path) -> bytes:
    """Return the content of a cache file. Raise `ValueError` if its checksum is wrong."""
    found = file.read_bytes()
    checksum, content = found[:32], found[32:]
    if hashlib.sha256(content).digest() != checksum:
        raise ValueError("damaged")
    return content


def _write_atomically(file: Path, content: bytes) -> None:
    """Write a file atomically: readers see either the old or the new content.

    A file in the package's directory has the same read permissions as the package, regardless of the umask.
    """
    shared, package = file.parent == _installation_cache_directory(), _core_directory() / "__init__.py"
    for folder in (file.parent.parent, file.parent) if shared else ():
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(package.parent.stat().st_mode & 0o777)
    if not file.parent.exists():
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        file.parent.chmod(0o755)  # regardless of the umask, because a group-writable directory would be skipped
    unfinished = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(hashlib.sha256(content).digest() + content)
        if shared:
            unfinished.chmod(package.stat().st_mode & 0o666)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_old_files(folder: Path, name: str) -> None:
    """Remove a kernel's oldest files, and unfinished files from killed processes.

    Another process may be doing this concurrently.
    """
    ages = []
    for file in folder.glob(f"{name}.*"):
        with suppress(OSError):
            ages.append((file.stat().st_mtime, file))
    for _, file in sorted(ages)[:-MAX_CACHED_VERSIONS]:
        with suppress(OSError):
            file.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------ dependencies of compiled code

Function = Callable[..., Any]


def called_functions(function: Function) -> list[Function]:
    """Return `function` and all compiled functions that it calls, sorted by name."""
    found: dict[int, Function] = {}
    waiting = [function]
    while waiting:
        caller = waiting.pop()
        if id(caller) not in found:
            found[id(caller)] = caller
            waiting += [value.py_func for _, value in _used_globals(caller) if hasattr(value, "py_func")]
    return sorted(found.values(), key=lambda each: (each.__module__, each.__qualname__))


def compiled_code_digest(functions: Iterable[Function]) -> str:
    """Return a digest of everything that determines the compiled code of `functions`:

    - the source of their modules, and of the modules whose record classes they use;
    - the values of the constants that they use, from any module;
    - the source of this package.
    """
    modules, constants = set(), []
    for function in functions:
        modules.add(function.__module__)
        for name, value in _used_globals(function):
            if isinstance(value, type):
                modules.add(value.__module__)
            elif isinstance(value, (bool, int, float, str, tuple)) or hasattr(value, "field_dict"):
                constants.append(f"{function.__module__}.{function.__qualname__}.{name}={_type_to_text(value)}")
    found = hashlib.sha256()
    for module in sorted(modules):
        found.update(module.encode() + _read_module_source(module))
    for own in sorted(Path(__file__).parent.glob("*.py")):
        found.update(own.name.encode() + own.read_bytes())
    found.update("\n".join(sorted(constants)).encode())
    return found.hexdigest()


def _read_module_source(module: str) -> bytes:
    """Return the source of an imported module, or empty for one without a file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).read_bytes() if file and Path(file).is_file() else b""


def _used_globals(function: Function) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each global and module attribute that a function uses."""
    names = sorted(_names_in_code(function.__code__))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from ((f"{name}.{each}", value.__dict__[each]) for each in names if each in value.__dict__)
        elif value is not None:
            yield name, value


def _names_in_code(code: CodeType) -> set[str]:
    """Return the names of globals and attributes in `code` and its nested functions."""
    inside = (_names_in_code(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inside)
