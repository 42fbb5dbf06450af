"""Where compiled kernels are kept, when they are found again, and that nothing compiles before it is called.

Each test lets processes of their own run a kernel of two functions, with a copy of the core, so that "beside the
package" is a place that the test owns. Only the first of them are fresh processes: the others are forked from one that
has imported Numba and nothing of the core, and reads the settings of Numba from its new environment.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from pytest_mock import MockerFixture

import cpsched
from cpsched.jit import compile_progress, compiled_functions, kernel_cache, numba_struct_types
from cpsched.jit.decorators import kernel, subroutine
from cpsched.jit.shared_structs import FixedColumn
from tests import warm
from tests.patience import ENOUGH_S

RUN = """
import json, sys, scaling
before = "numba" in sys.modules
answers = [scaling.scale(4), scaling.scale(5)]
from cpsched.jit.kernel_cache import CACHE_LOCATIONS
(filed,) = CACHE_LOCATIONS.values()
print(json.dumps([answers, before, filed.new, filed.folder and str(filed.folder)]))
"""


FORKED = """
import numba, sys
assert not [name for name in sys.modules if name.startswith("cpsched")]
numba.core.config.reload_config()
"""


BECOME_NOBODY = """
import os, pwd
import cpsched.jit.compiled_functions
numba.njit(lambda x: x + 1)(1)  # the compiler's modules may be unreadable for nobody
os.setgroups([])
os.setgid(pwd.getpwnam("nobody").pw_gid)
os.setuid(pwd.getpwnam("nobody").pw_uid)
"""


@dataclass(frozen=True)
class Ran:
    """What a process with the kernel found."""

    answers: list[int]
    numba_at_import: bool
    new: bool
    folder: Path | None
    said: str


def compiled_kernels(folder: str, names: list[str]) -> list[str]:
    return ["kernels"] if folder.endswith("__pycache__") else []


class Install:
    """A copy of the core with a kernel: `scaling.scale(x)` is FACTOR * x, by `helpers`, FACTOR from `constants`."""

    def __init__(self, root: Path) -> None:
        self.root, self.beside = root, root / "cpsched" / "__pycache__" / "kernels"
        self.user, self.explicit = root / "home" / ".cache" / "cpsched", root / "explicit"

    @classmethod
    def at(cls, root: Path) -> Install:
        shutil.copytree(Path(cpsched.__file__).parent, root / "cpsched", ignore=compiled_kernels)
        made = cls(root)
        made.write("constants", "FACTOR = 2")
        made.write(
            "helpers",
            "from constants import FACTOR\nfrom cpsched.jit.decorators import subroutine\n\n"
            "@subroutine\ndef helper(x: int):\n    return FACTOR * x\n",
        )
        made.write(
            "scaling",
            "from cpsched.jit.decorators import kernel\nfrom helpers import helper\n\n"
            "@kernel\ndef scale(x: int) -> int:\n    return helper(x)\n",
        )
        return made

    def write(self, module: str, text: str) -> None:
        (self.root / f"{module}.py").write_text(text)

    def environment(self, **further: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
        home = {"HOME": str(self.root / "home"), "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | home | further

    def anew(self) -> Ran:
        """In a process that imports everything itself."""
        command, where = [sys.executable, "-c", RUN], {"env": self.environment(), "cwd": self.root}
        return result(subprocess.run(command, **where, capture_output=True, text=True, check=False))

    def started(self, nobody: bool = False, **environment: str) -> warm.Begun:
        code = FORKED + BECOME_NOBODY * nobody + RUN
        server = warm.server("tests.unit.cpsched.jit.numba_at_work")
        return warm.Begun(server, ["-c", code], self.root, self.environment(**environment))

    def run(self, nobody: bool = False, **environment: str) -> Ran:
        return result(self.started(nobody, **environment).done(ENOUGH_S))


def result(done: subprocess.CompletedProcess[str]) -> Ran:
    assert done.returncode == 0, done.stderr
    answers, numba_at_import, new, folder = json.loads(done.stdout)
    return Ran(answers, numba_at_import, new, folder and Path(folder), done.stderr)


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install.at(tmp_path)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    install = Install.at(tmp_path_factory.mktemp("compiled"))
    assert install.run().new
    return install.root


@pytest.fixture
def compiled(compiled_once: Path, tmp_path: Path) -> Install:
    """An install of the test's own whose kernel is in the cache beside the package."""
    shutil.copytree(compiled_once, tmp_path, dirs_exist_ok=True)
    return Install(tmp_path)


@pytest.fixture
def shared() -> Iterator[Install]:
    """An install that other users may read; pytest's own directories are closed to them."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    root = Path(tempfile.mkdtemp(prefix="cpsched-shared-"))
    root.chmod(0o755)
    try:
        yield Install.at(root)
    finally:
        shutil.rmtree(root)


def test_kernel_compiles_at_first_call_and_is_reused(install: Install) -> None:
    first, second = install.anew(), install.anew()
    assert (first.numba_at_import, first.answers, first.new, first.folder) == (False, [8, 10], True, install.beside)
    assert (second.answers, second.new, second.folder) == ([8, 10], False, install.beside)
    assert "compiling" in first.said
    assert second.said == ""
    assert len(list(install.beside.iterdir())) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("constants", "FACTOR = 3"),
        (
            "helpers",
            "from constants import FACTOR\nfrom cpsched.jit.decorators import subroutine\n\n"
            "@subroutine\ndef helper(x: int):\n    return (FACTOR + 1) * x\n",
        ),
    ],
)
def test_detects_change_in_called_module_or_constant(compiled: Install, module: str, text: str) -> None:
    compiled.write(module, text)
    again = compiled.run()
    assert (again.answers, again.new) == ([12, 15], True)


def test_copied_installation_finds_cache_despite_timestamps(compiled: Install, tmp_path: Path) -> None:
    shutil.copytree(tmp_path, tmp_path / "image", copy_function=shutil.copyfile)
    copy = Install(tmp_path / "image")
    assert (found := copy.run()).answers == [8, 10]
    assert (found.new, found.folder) == (False, copy.beside)


@pytest.mark.parametrize(
    "damage",
    [pytest.param(b"", marks=pytest.mark.slow), pytest.param(b"garbage", marks=pytest.mark.slow), None],
    ids=["empty", "garbage", "truncated"],
)
def test_recompiles_and_replaces_damaged_file(compiled: Install, damage: bytes | None) -> None:
    (file,) = compiled.beside.iterdir()
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    again, third = compiled.run(), compiled.run()
    assert (again.answers, again.new, third.new) == ([8, 10], True, False)


def test_numba_directory_is_first_and_others_are_read(install: Install) -> None:
    assert install.run(NUMBA_CACHE_DIR=str(install.explicit)).folder == install.explicit
    assert not install.beside.exists()
    assert install.run().folder == install.beside
    shutil.rmtree(install.explicit)
    beside = install.run(NUMBA_CACHE_DIR=str(install.explicit))
    assert (beside.folder, beside.new) == (install.beside, False)


def test_explicit_directory_is_only_one_used(compiled: Install) -> None:
    alone = {"CPSCHED_CACHE_DIR": str(compiled.explicit), "NUMBA_CACHE_DIR": str(compiled.root / "unused")}
    first, second = compiled.run(**alone), compiled.run(**alone)
    assert [(ran.folder, ran.new) for ran in (first, second)] == [(compiled.explicit, True), (compiled.explicit, False)]
    assert not (compiled.root / "unused").exists()
    (blocked := compiled.root / "file").touch()
    assert compiled.run(CPSCHED_CACHE_DIR=str(blocked / "below")).folder is None


@pytest.mark.parametrize("setting", ["NUMBA_BOUNDSCHECK", "NUMBA_OPT"])
def test_separates_code_of_different_compiler_settings(compiled: Install, setting: str) -> None:
    assert compiled.run(**{setting: "1"}).new
    assert (compiled.run(**{setting: "1"}).new, compiled.run().new) == (False, False)


def test_parallel_compilations_both_succeed(install: Install) -> None:
    processes = [install.started(), install.started()]
    assert [result(process.done(ENOUGH_S)).answers for process in processes] == [[8, 10], [8, 10]]
    assert (install.run().new, len(list(install.beside.iterdir()))) == (False, 1)


def test_user_without_write_access_uses_owner_cache(shared: Install) -> None:
    umask = os.umask(0o077)
    try:
        assert shared.run().folder == shared.beside
    finally:
        os.umask(umask)
    found = shared.run(nobody=True)
    assert (found.answers, found.new, found.folder, found.said) == ([8, 10], False, shared.beside, "")


def test_user_compiles_into_own_cache_if_owner_did_not(shared: Install) -> None:
    own = shared.root / "home"
    own.mkdir()
    os.chown(own, pwd.getpwnam("nobody").pw_uid, -1)
    assert shared.run(nobody=True).folder == shared.user
    assert (again := shared.run(nobody=True)).folder == shared.user
    assert not again.new


def test_reports_once_how_to_fix_unwritable_cache(shared: Install) -> None:
    ran = shared.run(nobody=True)
    assert (ran.answers, ran.new, ran.folder) == ([8, 10], True, None)
    assert ran.said.count("cpsched warm-up") == ran.said.count("CPSCHED_CACHE_DIR") == 1


def test_removes_old_files_of_same_kernel_only(tmp_path: Path, mocker: MockerFixture) -> None:
    """Another process may have removed a file in between."""
    for i in range(kernel_cache.MAX_CACHED_VERSIONS + 3):
        (tmp_path / f"scale.{i:024}.bin").touch()
        os.utime(tmp_path / f"scale.{i:024}.bin", (i, i))
    (tmp_path / "scale_too.0.bin").touch()
    files = [tmp_path / "scale.gone.bin", *tmp_path.glob("scale.*")]
    glob = mocker.patch.object(Path, "glob", return_value=files)
    kernel_cache._remove_old_files(tmp_path, "scale")  # noqa: SLF001
    glob.assert_called_once_with("scale.*")
    kept = range(3, kernel_cache.MAX_CACHED_VERSIONS + 3)
    assert set(os.listdir(tmp_path)) == {"scale_too.0.bin", *(f"scale.{i:024}.bin" for i in kept)}


@subroutine
def halved(value: int) -> int:
    """A helper."""
    return value // 2


@kernel
def halves(column: FixedColumn) -> int:
    """A kernel."""
    total = 0
    for value in column:
        total += halved(value)
    return total


def test_helper_runs_in_python_and_kernel_takes_readonly_columns() -> None:
    writable = np.array([4, 5, 9])
    fixed = writable.copy()
    fixed.setflags(write=False)
    assert halved(5) == 2
    assert halves(writable) == halves(fixed) == halves.py_func(fixed) == 8  # type: ignore[attr-defined]
    assert halves in compiled_functions.KERNELS


def test_rejects_unsupported_type_hint() -> None:
    with pytest.raises(TypeError, match="must be a type that kernels support"):
        numba_struct_types.numba_type_of_hint(object)


def test_progress_counts_functions_once_per_compiled_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(compile_progress, "_watcher", lambda *step: told.append(step))
    functions = [halves.py_func, halved.py_func]  # type: ignore[attr-defined]
    with compile_progress.KernelCompileProgress("found", functions):
        compile_progress.on_function_compiled(functions[1])
    assert told == []
    with (
        compile_progress.KernelCompileProgress("made", functions) as _,
        compile_progress.KernelCompileProgress("other", functions),
    ):
        compile_progress._under_way[0].mark_uncached()  # noqa: SLF001
        compile_progress.on_function_compiled(functions[1])
        compile_progress.on_function_compiled(functions[1])
    assert told == [("made", 0, 2), ("made", 1, 2), ("made", 2, 2)]


@pytest.mark.parametrize(
    "imports",
    [
        "import cpsched.planning, cpsched.registry, cpsched_sim.cluster.replay, cpsched.dispatchers.cp.papers",
        "from cpsched_sim.cli import app; app(['dispatchers'], standalone_mode=False)",
        "from cpsched_sim.cli import app; app(['predictors', '--json'], standalone_mode=False)",
    ],
)
def test_import_and_listing_compile_and_import_nothing_heavy(imports: str) -> None:
    code = f"import sys; {imports}; sys.exit(str({{'numba', 'ortools'}} & sys.modules.keys() or ''))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


@pytest.mark.parametrize(("mode", "trusted"), [(0o755, True), (0o775, False), (0o757, False)])
def test_ignores_cache_directory_writable_by_others(install: Install, mode: int, trusted: bool) -> None:
    """The cache is code: a user who can write it could run code as the bridge's user."""
    install.explicit.mkdir()
    install.explicit.chmod(mode)
    ran = install.run(CPSCHED_CACHE_DIR=str(install.explicit))
    assert (ran.answers, ran.folder) == ([8, 10], install.explicit if trusted else None)
    assert ("is writable by other users" in ran.said) is not trusted
    assert bool(list(install.explicit.iterdir())) is trusted


def test_ignores_cache_directory_of_another_user(install: Install) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    install.run(CPSCHED_CACHE_DIR=str(install.explicit))
    for path in (install.explicit, *install.explicit.iterdir()):
        os.chown(path, 12345, 12345)
    ran = install.run(CPSCHED_CACHE_DIR=str(install.explicit))
    assert (ran.answers, ran.new) == ([8, 10], True), "compiled again"
    assert "belongs to user 12345" in ran.said
