"""The faults that are planted."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from parso import parse
from parso.python.tree import Operator as Sign

_COMPARISONS = (
    *("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
    *("Is_IsNot", "IsNot_Is"),
)
_COMPILES = frozenset({"kernel", "inner"})
"""Decorators of what is compiled: see `cpsched.compile.doors`."""
_SUMS = (
    *("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul"),
    *("BitOr_BitAnd", "BitAnd_BitOr"),
)
OF_COSMIC_RAY = (
    *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
    *("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_USub_UAdd"),
    *(f"ReplaceComparisonOperator_{change}" for change in _COMPARISONS),
    *(f"ReplaceBinaryOperator_{change}" for change in _SUMS),
)
"""Left out: replacements that no type checker lets pass, and names that do not exist."""


class DropOperand(Operator):
    """Leaves one condition of `and` or `or` out."""

    def mutation_positions(self, node):
        if node.type in ("and_test", "or_test"):
            for operand in node.children[::2]:
                yield operand.start_pos, operand.end_pos

    def mutate(self, node, index):
        at = 2 * index
        dropped = node.children[at : at + 2] if at == 0 else node.children[at - 1 : at + 1]
        prefix = node.get_first_leaf().prefix
        node.children = [child for child in node.children if child not in dropped]
        node.get_first_leaf().prefix = prefix
        return node

    @classmethod
    def examples(cls):
        return (Example("a and b", "b"), Example("a or b", "a", occurrence=1))


class DropStatement(Operator):
    """Leaves out a call whose result nobody uses, an assignment to part of something, or a `raise`."""

    def mutation_positions(self, node):
        if node.type == "simple_stmt" and _has_an_effect(node.children[0]):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        node.children[0] = parse(f"{node.get_first_leaf().prefix}pass")
        return node

    @classmethod
    def examples(cls):
        return (Example("self.done()\n", "pass\n"),)


class InverseIn(Operator):
    """`in` for `not in`."""

    def mutation_positions(self, node):
        if node.type == "comparison" and any(_is_in(child) for child in node.children):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        (at,) = (i for i, child in enumerate(node.children) if _is_in(child))
        was_not = node.children[at].type == "comp_op"
        node.children[at] = parse(" in" if was_not else " not in")
        return node

    @classmethod
    def examples(cls):
        return (Example("a in b", "a not in b"),)


def _has_an_effect(statement) -> bool:
    if statement.type in ("raise_stmt", "await_expr"):
        return True
    if statement.type == "atom_expr":
        return statement.children[-1].type == "trailer"
    if statement.type != "expr_stmt":
        return False
    target, sign = statement.children[0], statement.children[1]
    return (isinstance(sign, Sign) and sign.value != "=") or target.type == "atom_expr"


def _is_in(node) -> bool:
    words = node.get_code().split()
    return words in (["in"], ["not", "in"]) and node.type in ("keyword", "comp_op")


OPERATORS: dict[str, type[Operator]] = {
    **{name: plugins.get_operator(f"core/{name}") for name in OF_COSMIC_RAY},
    **{operator.__name__: operator for operator in (DropOperand, DropStatement, InverseIn)},
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted fault: the module's text with it, and the line before and after."""

    operator: str
    line: int
    before: str
    after: str
    text: str


def mutants(source: str, order: random.Random | None = None, kernels: bool = False) -> Iterator[Mutant]:
    """Every fault that can be planted into `source`, each once; in random order if one is given.

    Compiled kernels are left alone, unless `kernels` says that tests run them as plain Python. Each fault is made when
    it is asked for: a sample costs no more than its members.
    """
    statements = list(_statements(source))
    plain = ((which, text) for which, (_, text, _) in enumerate(statements) if kernels or not _is_compiled(text))
    spots = [(which, *spot) for which, text in plain for spot in _spots(text)]
    if order is not None:
        order.shuffle(spots)
    seen = [{_meaning(statement)} for _, statement, _ in statements]
    for which, operator, occurrence in spots:
        before, statement, behind = statements[which]
        text = mutate_code(statement, OPERATORS[operator](), occurrence)
        meaning = None if text is None else _meaning(text)
        if meaning is not None and meaning not in seen[which]:
            seen[which].add(meaning)
            yield _mutant(operator, source, before + text + behind)


def _is_compiled(statement: str) -> bool:
    """Whether a statement is a kernel: what runs is machine code that was compiled from the file."""
    node = ast.parse(statement).body[0]
    marks = {getattr(mark, "id", "") for mark in getattr(node, "decorator_list", [])}
    return not _COMPILES.isdisjoint(marks)


def _spots(statement: str) -> Iterator[tuple[str, int]]:
    """Each place, as its number, at which an operator can be applied."""
    nodes = list(ast_nodes(get_ast(statement)))
    for name, operator in OPERATORS.items():
        for occurrence in range(sum(1 for node in nodes for _ in operator().mutation_positions(node))):
            yield name, occurrence


def _statements(source: str) -> Iterator[tuple[str, str, str]]:
    """Each top-level statement with the text before and behind it: a short text is quick to parse, time and again."""
    lines = source.splitlines(keepends=True)
    starts = [_first_line(statement) - 1 for statement in ast.parse(source).body]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield "".join(lines[:start]), "".join(lines[start:stop]), "".join(lines[stop:])


def _first_line(statement: ast.stmt) -> int:
    return min([statement.lineno, *(mark.lineno for mark in getattr(statement, "decorator_list", []))])


def _mutant(name: str, source: str, text: str) -> Mutant:
    old, new = source.splitlines(), text.splitlines()
    at = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    more = len(new) - len(old)
    after = "\n".join(new[at : at + 1 + max(0, more)])
    return Mutant(name, at + 1, old[at].strip(), after.strip(), text)


def _meaning(source: str) -> str | None:
    """The program without annotations and docstrings; None where it is no program.

    `slots` and `frozen` of dataclasses count as annotations: mypy and the habit hold them, no behaviour does.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("object")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dataclass":
            node.keywords = [word for word in node.keywords if word.arg not in ("slots", "frozen")]
        if isinstance(getattr(node, "body", None), list):
            node.body = [line for line in node.body if not _is_text(line)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(line: ast.AST) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
