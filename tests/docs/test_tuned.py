"""The page of measured numbers, and the code, say the same."""

import ast
from pathlib import Path

import pytest

from docs.scripts import tuned
from tests.docs.test_code_blocks import ROOT

HELD = ("cpsched/kernels", "cpsched/dispatchers", "cpsched/predictors")


def is_number(node: ast.expr) -> bool:
    """Whether an expression is a number, or a tuple of them."""
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(is_number, node.elts))
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants(path: Path) -> set[str]:
    """The names of a module that are numbers, as `module:NAME`."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    names = (each.targets[0] for each in found if is_number(each.value))
    return {f"{module}:{name.id}" for name in names if isinstance(name, ast.Name)}


@pytest.mark.parametrize("row", tuned.TUNED, ids=lambda row: row.where)
def test_the_code_has_the_value_that_was_measured(row):
    assert tuned.value_of(row.where) == row.value


def test_every_number_of_kernels_dispatchers_and_predictors_is_measured_or_known_to_be_something_else():
    everywhere = {name for folder in HELD for path in (ROOT / folder).rglob("*.py") for name in constants(path)}
    others = {name for names in tuned.OTHERS.values() for name in names}
    unknown = {where for where in everywhere - {row.where for row in tuned.TUNED} if where.split(":")[1] not in others}
    assert not unknown
    assert others <= {where.split(":")[1] for where in everywhere}, "a name that no code has any more"


def test_each_number_says_what_it_trades_and_when_it_was_chosen():
    assert len({row.where for row in tuned.TUNED}) == len(tuned.TUNED)
    for row in tuned.TUNED:
        assert row.trades
        assert row.measured.startswith("20")
        if row.command:
            module = row.command.removeprefix("python -m ").split()[0]
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), row.command
