"""The site's notebook runs from top to bottom, and displays a table or a picture where expected.

Its cells run unchanged in one namespace. The last value of a cell is displayed as in a notebook.
"""

import ast
import json
import subprocess

import pytest

from tests.docs.test_code_blocks import ROOT, workshop  # noqa: F401  # a fixture


@pytest.fixture
def page():
    """What `workshop` is made for: a notebook's commands are those of a page of the site."""
    return ROOT / "docs"


NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


def code_cells(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cell(source, names, where):
    """Run a cell; what its last line gives, None where that is no value. Lines after `!` are a shell's."""
    if source.startswith("!"):
        subprocess.run(["bash", "-euc", source[1:]], check=True, timeout=600)
        return None
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


def shown(value):
    """How a notebook shows a value: the first of these that it has."""
    kinds = ("_repr_html_", "_repr_png_")
    return next((kind for kind in kinds if hasattr(type(value), kind) and getattr(value, kind)()), "text")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs_completely(path, workshop):  # noqa: F811
    names = {"__name__": "__main__"}
    values = [run_cell(source, names, f"{path.name}[{n}]") for n, source in enumerate(code_cells(path))]
    kinds = [shown(value) for value in values if value is not None]
    assert kinds.count("_repr_html_") >= 4
    assert kinds.count("_repr_png_") == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_contains_no_stored_output(path):
    cells = json.loads(path.read_text())["cells"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_notebook_exists():
    assert [path.name for path in NOTEBOOKS] == ["tutorial.ipynb"]
