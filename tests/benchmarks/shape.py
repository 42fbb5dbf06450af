"""`python -m tests.benchmarks.shape [COMMIT]`: the shape of the code in numbers, of this tree or of a commit.

Counted by syntax tree: modules, lines, functions with their lengths and arguments, classes, docstrings, comments,
annotations, compiled functions. A function's length is its lines from `def` to its end, docstring included.

Below the table: class names that stand in more than one module of the three packages. Nested classes do not count.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AREAS = {"cpsched": "cpsched/", "sim": "sim/", "bridge": "bridge/", "tests": "tests/"}
COMPILED = ("kernel", "inner", "bare")
ONE_ROLE = {
    "Advising": "writes points of jobs, for PBS and for Slurm",
    "Job": "a job; `watch.v1` has its form in answers, whose names are those of the API",
    "Options": "an adapter's part of the settings file",
    "Machine": "the nodes of a cluster, as an adapter, the kernels and the page have them",
    "Outage": "nodes that take no jobs for a time; the page has its form in answers",
    "Reader": "of a trace file, and of a PBS",
    "Reading": "what one reading showed, by adapter and transport",
    "Request": "what a job asks for; a trace's has what a replay does not say, too",
    "Reservation": "nodes set aside, for PBS and for Slurm",
    "RunningJob": "a job that runs; the page has its form in answers",
    "Translator": "turns readings into observations, for PBS and for Slurm",
    "Tuner": "the tuner beside a bridge, and what the loop knows of it",
}
"""Class names of several modules that mean the same there: which role they have."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


def sources(commit: str | None) -> Iterator[tuple[str, str]]:
    """Path and text of every Python file that is under version control."""
    listing = ["git", "ls-files"] if commit is None else ["git", "ls-tree", "-r", "--name-only", commit]
    for path in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        if path.endswith(".py") and path.startswith(tuple(AREAS.values())):
            if commit is None:
                yield path, (ROOT / path).read_text()
            else:
                shown = ["git", "show", f"{commit}:{path}"]
                yield path, subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def spread(values: list[int]) -> str:
    """Median, 90th percentile and maximum."""
    ordered = sorted(values) or [0]
    return " / ".join(str(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for share in (0.5, 0.9, 1.0))


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """The docstring's statement."""
    body = getattr(node, "body", [])
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def arguments(function: Function) -> int:
    given = function.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in ("self", "cls")])


def annotated(function: Function) -> bool:
    given = function.args
    named = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return function.returns is not None and all(each.annotation or each.arg in ("self", "cls") for each in named)


def is_compiled(function: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id in COMPILED for each in function.decorator_list)


def rows(files: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The numbers of one area."""
    trees = [(path, text, ast.parse(text)) for path, text in files]
    nodes = [node for _, _, tree in trees for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, Function)]
    nested = {id(each) for outer in functions for each in ast.walk(outer) if each is not outer}
    public = [each for each in functions if not each.name.startswith("_") and id(each) not in nested]
    total = sum(text.count("\n") for _, text, _ in trees)
    comments = sum(
        token.type == tokenize.COMMENT
        for _, text, _ in trees
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    told = sum(lines_of(text) for node in nodes if isinstance(node, Documented) and (text := docstring_of(node)))
    with_text = [function for function in functions if docstring_of(function)]
    compiled = [function for function in functions if is_compiled(function)]
    yield "modules / lines", f"{len(trees)} / {total:,}"
    yield "functions", str(len(functions))
    yield "function length: median / p90 / max", spread([lines_of(each) for each in functions])
    yield "arguments: median / p90 / max", spread([arguments(each) for each in functions])
    own = [text.count("\n") for path, text, _ in trees if not path.endswith("__init__.py")]
    yield "module length: median / p90 / max", spread(own)
    yield "classes", str(sum(isinstance(node, ast.ClassDef) for node in nodes))
    yield (
        "docstrings: all / public functions",
        (
            f"{len(with_text) / max(1, len(functions)):.0%} / "
            f"{len([each for each in public if docstring_of(each)]) / max(1, len(public)):.0%}"
        ),
    )
    yield "docstring lines / comments, of all lines", f"{told / total:.1%} / {comments / total:.1%}"
    yield "annotated functions", f"{len([each for each in functions if annotated(each)]) / max(1, len(functions)):.0%}"
    yield (
        "compiled: functions / doors",
        (
            f"{len(compiled)} / "
            f"{sum(any(getattr(d, 'id', '') == 'kernel' for d in each.decorator_list) for each in compiled)}"
        ),
    )
    yield "compiled: length median / p90 / max", spread([lines_of(each) for each in compiled])
    yield "compiled: arguments median / p90 / max", spread([arguments(each) for each in compiled])


def public_classes(tree: ast.Module) -> set[str]:
    return {each.name for each in tree.body if isinstance(each, ast.ClassDef) and not each.name.startswith("_")}


def names_of_several(files: list[tuple[str, str]]) -> list[str]:
    """The class names that more than one module defines."""
    trees = [ast.parse(text) for path, text in files if not path.startswith(AREAS["tests"])]
    counted = Counter(name for tree in trees for name in public_classes(tree))
    return sorted(name for name, count in counted.items() if count > 1)


def main() -> None:
    """Print the table."""
    files = list(sources(sys.argv[1] if len(sys.argv) > 1 else None))
    by_area = {area: dict(rows([f for f in files if f[0].startswith(at)])) for area, at in AREAS.items()}
    print("| | " + " | ".join(AREAS) + " |\n|---" * 1 + "|---" * len(AREAS) + "|")
    for name in by_area["cpsched"]:
        print(f"| {name} | " + " | ".join(by_area[area][name] for area in AREAS) + " |")
    found = names_of_several(files)
    several = [name for name in found if name not in ONE_ROLE]
    print(f"\nclass names of several modules: {len(found)}")
    print(f"with several meanings: {len(several)}: {', '.join(several)}")


if __name__ == "__main__":
    main()
