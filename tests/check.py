"""What to run after a change: linters over the changed files, and the tests that belong to them.

python -m tests.check [FILE ...]

Without files: those that differ from the last commit, new ones among them. The exit code is 0 if all is well.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.mutants.by_hand import module_of

ROOT = Path(__file__).resolve().parents[1]
MIRRORS = {
    "cpsched": "tests/unit/cpsched",
    "sim/cpsched_sim": "tests/unit/sim",
    "bridge/cpsched_bridge": "tests/unit/bridge",
}
"""The folder of each package, and of its unit tests, which stand under the same paths."""
ELSEWHERE = {
    "cpsched/dispatchers/cp/recipes": ("tests/unit/cpsched/dispatchers/cp/test_family.py",),
    "cpsched/kernels/cp": ("tests/unit/cpsched/dispatchers/cp",),
    "cpsched/kernels": ("tests/properties/test_kernels.py", "tests/properties/test_ranges.py"),
    "cpsched/errors.py": ("tests/unit/cpsched/model", "tests/unit/cpsched/test_policy.py"),
    "cpsched/model/__init__.py": ("tests/unit/cpsched/model",),
    "sim/cpsched_sim/cli": ("tests/unit/sim/test_cli.py", "tests/unit/sim/test_cli_own_data.py"),
    "sim/cpsched_sim/testing": ("tests/integration/test_promises_for_plugins.py",),
    "sim/cpsched_sim/patience.py": ("tests/unit/sim/test_bad_plugins.py",),
    "sim/cpsched_sim/frames.py": ("tests/unit/sim/test_experiment.py",),
    "sim/cpsched_sim/processes.py": ("tests/unit/sim/test_comparison.py",),
    "bridge/cpsched_bridge/errors.py": ("tests/unit/bridge/test_settings.py", "tests/unit/bridge/test_children.py"),
    "bridge/cpsched_bridge/cycle": ("tests/unit/bridge/cycle/test_loop.py", "tests/unit/bridge/cycle/test_limits.py"),
    "bridge/cpsched_bridge/adapters/mock": (
        "tests/unit/bridge/adapters/test_adapters.py",
        "tests/unit/bridge/adapters/test_mock_clocks.py",
        "tests/unit/bridge/adapters/test_mock_remote.py",
    ),
    "bridge/cpsched_bridge/adapters/pbs": ("tests/unit/bridge/adapters/pbs", "tests/pbs/test_loop.py"),
    "bridge/cpsched_bridge/adapters/shared": (
        "tests/unit/bridge/adapters/slurm/transport/cli",
        "tests/unit/bridge/adapters/slurm/translation",
        "tests/unit/bridge/adapters/pbs",
    ),
    "bridge/cpsched_bridge/watch/page": ("tests/unit/bridge/watch/page",),
    "sim/cpsched_sim/systems": ("tests/unit/sim/systems/test_system.py",),
    "deploy/bundle": ("tests/unit/deploy/test_bundle.py",),
    "deploy/slurm": ("tests/unit/deploy/test_submit_plugin.py",),
    "deploy": ("tests/unit/deploy",),
    "docs": ("tests/docs/test_pages.py",),
    "Makefile": ("tests/test_check.py",),
    "pyproject.toml": ("tests/test_check.py",),
    "tests/builders.py": ("tests/unit/cpsched/test_planning.py",),
    "tests/fakes.py": ("tests/unit/bridge/cycle/test_loop.py",),
    "tests/check.py": ("tests/test_check.py",),
    "tests/cpu_times.py": ("tests/test_cpu_times.py",),
    "tests/slow_first.py": ("tests/test_slow_first.py",),
    "tests/release.py": ("tests/test_release.py",),
    "tests/mutants": ("tests/mutants",),
    "tests/chaos": ("tests/chaos/test_chaos.py::test_a_history_is_the_same_each_time",),
}
"""The tests of what has none under its own name, by path or by the folders around it; the nearest counts."""


def changed() -> list[str]:
    """The files that differ from the last commit, and those that Git does not know yet."""
    commands = ("diff", "--name-only", "HEAD"), ("ls-files", "--others", "--exclude-standard")
    listed = (subprocess.run(["git", *each], cwd=ROOT, check=True, capture_output=True, text=True) for each in commands)
    return sorted({line for done in listed for line in done.stdout.splitlines()})


def tests_for(file: str) -> tuple[str, ...]:
    """The tests that belong to one file of the repository (its path from there), sorted; none where nothing is known.

    Of a module: those under its own name and those that watch over it when faults are planted, together. If there are
    none, those of `ELSEWHERE`; or else the unit tests that import it from where it stands; or else those of its folder.
    """
    path = Path(file)
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        return (file,)
    if (file.startswith("docs/") and path.suffix == ".md") or file in ("README.md", "CONTRIBUTING.md"):
        return (f"tests/docs/test_code_blocks.py::test_the_code_blocks_run[{file}]", "tests/docs/test_pages.py")
    found = _own(path) if path.suffix == ".py" else set()
    found = found or next((set(ELSEWHERE[at]) for at in map(str, (path, *path.parents)) if at in ELSEWHERE), set())
    if not found and path.suffix == ".py" and file != "tests/__init__.py":
        found = _importing(_name(path)) or _of_its_folder(path)
    return tuple(sorted(found))


def _mirror(path: Path) -> Path | None:
    """Where the tests of a module's folder stand; None for a file of no package."""
    return next((ROOT / m / path.parent.relative_to(f) for f, m in MIRRORS.items() if path.is_relative_to(f)), None)


def _name(path: Path) -> str:
    """The module's name, as it is imported."""
    folder = next((Path(f).parent for f in MIRRORS if path.is_relative_to(f)), Path())
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def _own(path: Path) -> set[str]:
    if (mirror := _mirror(path)) is None:
        return set()
    named = [*mirror.glob(f"test_{path.stem}.py"), *mirror.glob(f"test_{path.stem}_*.py")]
    return {str(file.relative_to(ROOT)) for file in named} | set(module_of(_name(path)).tests)


def _of_its_folder(path: Path) -> set[str]:
    mirror = _mirror(path)
    return {str(file.relative_to(ROOT)) for file in mirror.glob("test_*.py")} if mirror else set()


def _importing(name: str) -> set[str]:
    """The unit tests that import a module by its name."""
    parent, _, last = name.rpartition(".")
    whole, part = f"from {name} import ", f"from {parent} import "
    return {
        file
        for file, lines in _imports().items()
        if any(line.startswith(whole) or (line.startswith(part) and last in line[len(part) :]) for line in lines)
    }


@cache
def _imports() -> dict[str, tuple[str, ...]]:
    files = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    imports = ((file, file.read_text().splitlines()) for file in files)
    return {str(file.relative_to(ROOT)): tuple(i for i in lines if i.startswith("from ")) for file, lines in imports}


def linters(files: Sequence[str]) -> Iterator[list[str]]:
    """The commands that look over the files; types and import contracts only where a package changed."""
    python = [file for file in files if file.endswith((".py", ".ipynb"))]
    if python:
        yield ["ruff", "check", *python]
        yield ["ruff", "format", "--check", *python]
    if any(file.startswith(tuple(MIRRORS)) or file == "pyproject.toml" for file in files):
        yield ["mypy"]
        yield ["lint-imports"]


def main(arguments: list[str]) -> int:
    """Run what belongs to the files; 0 if all of it passes, 2 for a file that is not there."""
    here = [str((Path.cwd() / each).resolve()) for each in arguments]
    wrong = [each for each in here if not Path(each).is_relative_to(ROOT) or not Path(each).is_file()]
    if wrong:
        print(f"check: {wrong[0]}: no file of this repository", file=sys.stderr)
        return 2
    files = [str(Path(each).relative_to(ROOT)) for each in here] or [f for f in changed() if (ROOT / f).is_file()]
    if not files:
        print("check: nothing differs from the last commit")
    beside = Path(sys.executable)
    failed = [" ".join(each[:2]) for each in linters(files) if not passes(str(beside.with_name(each[0])), *each[1:])]
    for file in files:
        print(f"{file}: {', '.join(tests_for(file)) or 'no tests are known for it'}")
    tests = sorted({test for file in files for test in tests_for(file)})
    if tests and not passes(sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *tests):
        failed.append("tests")
    if failed:
        print(f"check: FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def passes(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
