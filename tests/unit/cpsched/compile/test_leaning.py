import ast
from pathlib import Path

import pytest

from cpsched.compile import leaning


def test_the_installed_numba_has_all_that_is_leant_on():
    assert leaning.missing() == []


@pytest.mark.parametrize("name", ["numba.nowhere:f", "numba.core.compiler:CompileResult._gone", "numba.core:gone.x"])
def test_a_name_that_is_gone_is_told_with_the_file_that_needs_it(monkeypatch, name):
    monkeypatch.setattr(leaning, "LEANS_ON", {"cache.py": (name, "numba.core.serialize:dumps")})
    assert leaning.missing() == [f"{name} (cache.py)"]


def test_every_file_that_imports_from_inside_of_numba_is_in_the_list():
    inside = set()
    for file in Path(leaning.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                ("numba.core", "numba.experimental")
            ):
                inside.add(file.name)
    assert inside == set(leaning.LEANS_ON)
