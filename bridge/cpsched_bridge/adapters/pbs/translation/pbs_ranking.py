"""Compute PBS's ranks of waiting jobs, and read the jobs' points.

PBS sorts by queue priority, then by `job_sort_formula` (largest first), then by age. All waiting subjobs of an array
share the array's points. A formula is an arithmetic expression in Python syntax over these terms:

- a number from the job's `Resource_List`, such as `ncpus` (sizes are in KiB; 0 if not requested),
- `eligible_time` (seconds), `accrue_type`, `job_priority`, `queue_priority`,
- `fairshare_perc`, `fairshare_tree_usage`, `fairshare_factor`, which are available only inside PBS's scheduler.

This module evaluates a formula as PBS does, provided that PBS prints all of its terms. PBS stores the value as a 32-bit
float, which cannot represent every integer beyond 16,777,216.

Source: OpenPBS 23.06.06, `formula_evaluate` in the scheduler and `validate_job_formula` in the server.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from cpsched.pbs_text import parse_duration_s
from cpsched_bridge.adapters.pbs.pbs_objects import (
    BOOST_RESOURCE,
    PbsJob,
    PbsQueue,
    PbsScheduler,
    PbsServer,
    parse_resource_amount,
)
from cpsched_bridge.adapters.pbs.translation import pbs_jobs
from cpsched_bridge.adapters.pbs.translation.pbs_jobs import STARTED_ARRAY_STATE, WAITING_STATES
from cpsched_bridge.adapters.shared.adapter_errors import UNREADABLE_FIELD_ERRORS
from cpsched_bridge.ports import QueueRank


def find_sort_formula(server: PbsServer, schedulers: Mapping[str, PbsScheduler]) -> str:
    """Return the formula set on the server or its schedulers, or "" if there is none.

    Raise `FormulaNotComputable` if the formulas differ or one is unreadable.
    """
    formulas = {server.formula, *(each.formula for each in schedulers.values())} - {""}
    if len(formulas) > 1:
        raise FormulaNotComputable("differs between schedulers")
    formula = formulas.pop() if formulas else ""
    if formula is None:
        raise FormulaNotComputable("is not a single text value")
    return formula


def can_be_boosted(job: PbsJob) -> bool:
    """Return whether this is a waiting job, or an array with waiting subjobs."""
    return job.state in WAITING_STATES | {STARTED_ARRAY_STATE}


def rank_jobs(
    jobs: Mapping[str, PbsJob], queues: Mapping[str, PbsQueue], managed: Collection[str], formula: JobSortFormula
) -> list[QueueRank]:
    """Return the ranks of waiting jobs in managed queues or with points.

    PBS's values are rounded down and shifted by a common amount that makes each at least 1.
    """
    numbers = pbs_jobs.assign_job_numbers(jobs)
    subjobs = _group_subjobs_by_array(jobs, numbers)
    found = []
    for name, job in jobs.items():
        if not can_be_boosted(job) or pbs_jobs.find_parent_array_name(name) is not None or job.boost is None:
            continue
        if job.queue not in managed and not job.boost:
            continue
        queue = queues.get(job.queue, PbsQueue(job.queue))
        terms = compute_formula_terms(formula, job, queue) | {BOOST_RESOURCE: 0.0}
        stands_for = tuple(subjobs.get(name, ())) if pbs_jobs.is_array_job_name(name) else (numbers[name],)
        own = math.floor(formula.evaluate(terms))
        label = pbs_jobs.strip_server_name(name)
        found.append(QueueRank(numbers[name], stands_for, own, job.boost, queue.priority, label))
    lowest = min((each.own for each in found), default=1)
    shift = 1 - min(lowest, 1)
    return [replace(each, own=each.own + shift) for each in found]


def _group_subjobs_by_array(jobs: Iterable[str], numbers: Mapping[str, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in jobs:
        array = pbs_jobs.find_parent_array_name(name)
        if array is not None:
            found.setdefault(array, []).append(numbers[name])
    return found


KIB_IN_MIB = 1024
SCHEDULER_ONLY_TERMS = frozenset({"fairshare_perc", "fair_share_perc", "fairshare_tree_usage", "fairshare_factor"})
"""Terms that PBS does not print."""
MAX_FORMULA_CHARS = 1024
"""Maximum length of a formula in characters, which is also PBS's limit for one line of qmgr input."""

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs, "min": min, "max": max, "int": math.trunc, "float": float, "round": round, "pow": math.pow,
    "sqrt": math.sqrt, "log": math.log, "log10": math.log10, "log2": math.log2, "exp": math.exp, "ceil": math.ceil,
    "floor": math.floor, "fabs": math.fabs,
}  # fmt: skip


class FormulaNotComputable(Exception):
    """An error for a formula that only PBS's scheduler can evaluate.

    The message states the reason.
    """


@dataclass(frozen=True, slots=True)
class JobSortFormula:
    """A formula parsed by `parse`."""

    text: str
    body: ast.expr
    names: frozenset[str]
    """Terms used in the formula."""

    @classmethod
    def parse(cls, text: str) -> JobSortFormula:
        """Return the parsed formula. Raise `FormulaNotComputable`.

        A formula is not computable if it is invalid or if PBS does not print its terms.
        """
        if len(text) > MAX_FORMULA_CHARS:
            raise FormulaNotComputable(f"is longer than {MAX_FORMULA_CHARS} characters")
        try:
            body = ast.parse(text.strip(), mode="eval").body
            names = _collect_formula_terms(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise FormulaNotComputable(f"is not an arithmetic expression: {type(error).__name__}") from error
        hidden = sorted(names & SCHEDULER_ONLY_TERMS)
        if hidden:
            raise FormulaNotComputable(f"uses {hidden[0]}, which only PBS's scheduler can compute")
        return cls(text, body, frozenset(names))

    @property
    def has_unit_boost_weight(self) -> bool:
        """Whether one additional point raises every job's value by one."""
        everywhere = [each for each in ast.walk(self.body) if isinstance(each, ast.Name) and each.id == BOOST_RESOURCE]
        return len(everywhere) == 1 and any(term is everywhere[0] for term in _split_summands(self.body))

    def evaluate(self, terms: Mapping[str, float]) -> float:
        """Return a job's value, or 0 if it cannot be computed. Missing terms are 0."""
        try:
            found = float(_evaluate_expression(self.body, terms))
        except (ArithmeticError, ValueError, TypeError, RecursionError):
            return 0.0
        return found if math.isfinite(found) else 0.0


def compute_formula_terms(formula: JobSortFormula, job: PbsJob, queue: PbsQueue) -> dict[str, float]:
    """Return a job's values for a formula's terms, without unreadable terms."""
    terms = {
        "eligible_time": float(job.eligible_s or 0),
        "accrue_type": job.accrue_type,
        "job_priority": job.priority,
        "queue_priority": float(queue.priority),
    }
    for name in formula.names - terms.keys():
        with contextlib.suppress(*UNREADABLE_FIELD_ERRORS):
            terms[name] = _parse_requested_number(job.requested.get(name, "0"))
    return terms


def _parse_requested_number(text: str) -> float:
    if ":" in text:
        return float(parse_duration_s(text))
    try:
        return float(text)
    except ValueError:
        return float(parse_resource_amount(text, is_size=True) * KIB_IN_MIB)


def _collect_formula_terms(body: ast.expr) -> set[str]:
    """Return a formula's terms. Raise `ValueError` if it is not arithmetic."""
    found: set[str] = set()
    called = {id(each.func) for each in ast.walk(body) if isinstance(each, ast.Call)}
    for each in ast.walk(body):
        match each:
            case ast.operator() | ast.cmpop() | ast.unaryop() | ast.expr_context():
                continue
            case ast.Constant(value=int() | float()) | ast.IfExp():
                continue
            case ast.BinOp(op=op) if type(op) in _OPERATORS:
                continue
            case ast.Compare(ops=[test]) if type(test) in _COMPARISONS:
                continue
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                continue
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                continue
            case ast.Name(id=name):
                if id(each) not in called:
                    found.add(name)
            case _:
                raise ValueError(type(each).__name__)
    return found


def _split_summands(body: ast.expr) -> list[ast.expr]:
    """Return the summands with a plus sign, for example a and b in `a + b - c`."""
    match body:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [*_split_summands(left), *_split_summands(right)]
        case ast.BinOp(left=left, op=ast.Sub()):
            return _split_summands(left)
    return [body]


def _evaluate_expression(each: ast.expr, terms: Mapping[str, float]) -> float:
    match each:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return terms.get(name, 0.0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_expression(operand, terms)
        case ast.UnaryOp(operand=operand):
            return _evaluate_expression(operand, terms)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate_expression(left, terms), _evaluate_expression(right, terms))
        case ast.IfExp(test=test, body=then, orelse=other):
            return _evaluate_expression(then if _evaluate_expression(test, terms) else other, terms)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return float(_COMPARISONS[type(op)](_evaluate_expression(left, terms), _evaluate_expression(right, terms)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return float(_FUNCTIONS[name](*(_evaluate_expression(argument, terms) for argument in arguments)))
    raise TypeError(type(each).__name__)
