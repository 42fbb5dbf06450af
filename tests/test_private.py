"""Tests hold what a module promises: how many lines of each test file touch what is private elsewhere may only fall.

A line counts where it names an attribute `_x` of anything but `self`, `cls` and `super()`, imports a private name, or
hands one over as text (`setattr(journal, "_db", ...)`).
"""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PUBLIC_ALL_THE_SAME = {"_replace", "_asdict", "_exit", "_repr_html_", "_repr_png_", "_", "_nrt_python"}
"""Named tuples, the operating system and notebooks call them so; and Numba the module that counts what it frees."""

LEFT = {
    "benchmarks/journal.py": 3,
    "benchmarks/judging.py": 3,
    "benchmarks/lookahead.py": 1,
    "benchmarks/lookahead_solver.py": 3,
    "benchmarks/outlook.py": 1,
    "benchmarks/tails.py": 2,
    "chaos/test_chaos.py": 9,
    "chaos/test_two_bridges.py": 2,
    "integration/test_crash_table.py": 3,
    "monitoring/refusing.py": 1,
    "mutants/runner.py": 1,
    "pbs/test_crashes.py": 3,
    "stores.py": 6,
    "unit/bridge/adapters/pbs/test_advising.py": 1,
    "unit/bridge/adapters/slurm/policy/test_points.py": 1,
    "unit/bridge/adapters/slurm/policy/test_reader.py": 2,
    "unit/bridge/adapters/slurm/translation/test_reasons.py": 1,
    "unit/bridge/adapters/slurm/transport/pyslurm/test_deadlines.py": 1,
    "unit/bridge/cycle/test_apart.py": 2,
    "unit/bridge/cycle/test_commands.py": 1,
    "unit/bridge/cycle/test_loop.py": 1,
    "unit/bridge/cycle/test_storage_errors.py": 1,
    "unit/bridge/program/test_tuner.py": 4,
    "unit/bridge/store/test_database.py": 2,
    "unit/bridge/test_children.py": 2,
    "unit/bridge/watch/page/test_own.py": 2,
    "unit/bridge/watch/page/test_page.py": 1,
    "unit/bridge/watch/test_exporter.py": 1,
    "unit/bridge/watch/test_gate.py": 3,
    "unit/bridge/watch/web/test_server.py": 1,
    "unit/cpsched/compile/test_handles.py": 1,
    "unit/cpsched/compile/test_kernel_cache.py": 6,
    "unit/cpsched/dispatchers/cp/test_engine.py": 8,
    "unit/cpsched/dispatchers/cp/test_kit.py": 2,
    "unit/cpsched/dispatchers/cp/test_sat.py": 3,
    "unit/cpsched/dispatchers/cp/test_stairs.py": 2,
    "unit/cpsched/dispatchers/slurm/test_advised.py": 1,
    "unit/cpsched/kernels/test_baseline.py": 2,
    "unit/cpsched/test_policy.py": 1,
    "unit/sim/test_compiling.py": 2,
    "unit/sim/test_fresh.py": 2,
    "unit/sim/whatif/test_side_by_side.py": 1,
}
"""By file: how many lines of it do. Whoever brings a number down writes the lower one here; no number goes up."""


def is_private(name: str) -> bool:
    name = name.rpartition(".")[2]
    return (
        name.startswith("_") and not name.startswith("__") and name.isidentifier() and name not in PUBLIC_ALL_THE_SAME
    )


def is_own(value: ast.expr) -> bool:
    """Whether it is `self`, `cls` or `super()`."""
    name = value.func if isinstance(value, ast.Call) else value
    return isinstance(name, ast.Name) and name.id in ("self", "cls", "super")


def names_of(node: ast.AST) -> list[str]:
    """The names of others that this piece of code touches."""
    match node:
        case ast.Attribute(value, attr) if not is_own(value):
            return [attr]
        case ast.ImportFrom(names=names):
            return [each.name for each in names]
        case ast.Call(args=arguments):
            return [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return []


def lines_that_touch(source: str) -> list[int]:
    """The numbers of the lines that touch what is private elsewhere."""
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if any(map(is_private, names_of(node)))})


@pytest.mark.parametrize(
    ("line", "touches"),
    [
        ("journal._db.close()", True),
        ("mocker.patch.object(journal, '_write')", True),
        ("mocker.patch('cpsched_sim.processes._replay_one')", True),
        ("from cpsched.fit import _holds", True),
        ("self._db.close()", False),
        ("super()._observe()", False),
        ("record._replace(end=3)", False),
        ("policy.__dict__", False),
        ("'_db'", False),
    ],
)
def test_what_counts(line, touches):
    assert bool(lines_that_touch(line)) is touches


def test_no_test_file_touches_more_of_what_is_private_than_it_did():
    found = {
        str(path.relative_to(HERE)): len(lines)
        for path in sorted(HERE.rglob("*.py"))
        if (lines := lines_that_touch(path.read_text()))
    }
    more = {name: count for name, count in found.items() if count > LEFT.get(name, 0)}
    assert not more, "hold what is promised instead, or make it public"
    assert found == LEFT, "fewer than before: write it down in LEFT"
