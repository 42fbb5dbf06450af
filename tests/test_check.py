"""What `make check` runs for which file."""

import pytest

from tests import check
from tests.check import ELSEWHERE, MIRRORS, ROOT, linters, main

MODULES = [str(path.relative_to(ROOT)) for folder in MIRRORS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_every_module_has_tests_and_every_test_named_is_there():
    assert [file for file in MODULES if not check.tests_for(file) and not file.endswith("__init__.py")] == []
    named = {test.partition("::")[0] for file in (*MODULES, *ELSEWHERE) for test in check.tests_for(file)}
    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert {path for path in ELSEWHERE if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("cpsched/fit.py", {"tests/unit/cpsched/test_fit.py"}),
        ("bridge/cpsched_bridge/cycle/loop.py", {f"tests/unit/bridge/cycle/test_loop{e}.py" for e in ("", "_endings")}),
        ("bridge/cpsched_bridge/cycle/fallback.py", {"tests/unit/bridge/cycle/test_fallback.py"}),
        (
            "sim/cpsched_sim/traces/swf.py",
            {"tests/unit/sim/traces/test_swf.py", "tests/unit/sim/traces/test_bounds.py"},
        ),
        ("cpsched/kernels/picking.py", {"tests/properties/test_kernels.py", "tests/properties/test_ranges.py"}),
        ("tests/unit/sim/test_cli.py", {"tests/unit/sim/test_cli.py"}),
        ("deploy/slurm/job_submit.lua", {"tests/unit/deploy/test_submit_plugin.py"}),
        (
            "README.md",
            {"tests/docs/test_code_blocks.py::test_the_code_blocks_run[README.md]", "tests/docs/test_pages.py"},
        ),
        ("LICENSE", set()),
    ],
)
def test_the_tests_of_a_file(file, tests):
    assert tests <= set(check.tests_for(file))
    assert bool(tests) == bool(check.tests_for(file))


def test_types_and_contracts_are_looked_over_where_a_package_changed():
    programs = {
        files: [command[0] for command in linters([files])] for files in ("cpsched/fit.py", "tests/fakes.py", "x")
    }
    assert programs == {
        "cpsched/fit.py": ["ruff", "ruff", "mypy", "lint-imports"],
        "tests/fakes.py": ["ruff", "ruff"],
        "x": [],
    }


def test_a_file_that_is_not_there_is_refused(capsys):
    assert main(["no-such-file.py"]) == 2
    assert "no file of this repository" in capsys.readouterr().err


def test_the_result_is_that_of_linters_and_tests(monkeypatch, capsys):
    for wrong, told in (("none", None), ("pytest", "tests"), ("format", "ruff format")):
        ran = []
        monkeypatch.setattr(
            check, "passes", lambda *command, ran=ran, wrong=wrong: ran.append(command) or wrong not in command
        )
        assert main([str(ROOT / "tests/unit/sim/test_cli.py")]) == (0 if told is None else 1)
        assert ran[-1][-1] == "tests/unit/sim/test_cli.py"
        assert len(ran) == 3
        last = capsys.readouterr().out.splitlines()[-1]
        assert (last == f"check: FAILED: {told}") is (told is not None)
