"""The tool itself: which faults it plants, and that what its files name is there."""

import tomllib

import pytest

from tests.mutants.__main__ import HERE, ROOT, Watched, equivalents, watched
from tests.mutants.operators import OPERATORS, mutants

SOURCE = '''
def pick(a: int | None, b: int = 3) -> list[int]:
    """Words that no mutant touches."""
    found = []
    if a is not None and a < b and a not in found:
        found.append(a)
        found[0] += 1
    return found
'''


def test_conditions_boundaries_numbers_and_statements_are_changed_one_at_a_time():
    after = {mutant.after for mutant in mutants(SOURCE)}
    assert {
        "if a is not None and a <= b and a not in found:",
        "if a is not None and a >= b and a not in found:",
        "if a is not None or a < b and a not in found:",
        "if a < b and a not in found:",
        "if a is not None and a not in found:",
        "if a is not None and a < b:",
        "if a is not None and a < b and a in found:",
        "pass",
    } <= after
    assert sum(mutant.after == "pass" for mutant in mutants(SOURCE)) == 2
    assert any(mutant.before == "found[0] += 1" and "2" in mutant.after for mutant in mutants(SOURCE))


def test_every_mutant_is_another_program():
    texts = [mutant.text for mutant in mutants(SOURCE)]
    assert len(set(texts)) == len(texts) > 10
    for mutant in mutants(SOURCE):
        compile(mutant.text, "mutant", "exec")
        assert "int | None" in mutant.text, "annotations are left alone"


def test_compiled_kernels_are_left_alone():
    plain = SOURCE.replace("def pick", "def other")
    for mark in ("@kernel\n", "@inner\n"):
        both = [mutant.line for mutant in mutants(plain + SOURCE.replace("def pick", f"{mark}def pick"))]
        assert both == [mutant.line for mutant in mutants(plain)]
        kernel = SOURCE.replace("def pick", f"{mark}def pick")
        assert len(list(mutants(kernel, kernels=True))) == len(list(mutants(SOURCE)))
    assert [m.line for m in mutants(SOURCE.replace("def pick", "@cache\ndef pick"))] != []


@pytest.mark.parametrize("name", ["DropOperand", "DropStatement", "InverseIn"])
def test_our_own_operators_do_as_their_examples_say(name):
    for example in OPERATORS[name].examples():
        found = [mutant.text for mutant in mutants(example.pre_mutation_code) if mutant.operator == name]
        assert example.post_mutation_code.strip() in [text.strip() for text in found]


def test_the_files_name_modules_and_tests_that_are_there_and_give_reasons():
    for module in watched().values():
        assert module.path.exists(), module.name
        assert all((ROOT / test).exists() for test in module.tests), module.tests
        assert 0.5 < module.goal <= 1.0
    for entry in tomllib.loads((HERE / "equivalent.toml").read_text())["mutant"]:
        assert entry["module"] in watched()
        assert entry["line"] != entry["mutated"]
        assert len(entry["reason"]) > 10


def test_every_fault_that_means_the_same_still_stands_in_its_module():
    assert sum(len(equivalents(module)) for module in watched().values()) > 50


def test_a_fault_whose_line_is_gone_is_told(monkeypatch, tmp_path):
    changed = tmp_path / "fit.py"
    changed.write_text("def nothing(): ...\n")
    monkeypatch.setattr(Watched, "path", changed)
    with pytest.raises(ValueError, match=r"equivalent\.toml: cpsched\.fit has no line '"):
        equivalents(watched()["cpsched.fit"])
