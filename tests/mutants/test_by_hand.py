"""Faults by hand: the file says of each what it means, and one that no longer fits its module is told."""

import pytest

from tests.mutants.by_hand import Fault, faults, module_of


def test_a_fault_is_planted_where_its_text_stands():
    fault = Fault("a.module", "b < c", "b <= c", "the last one counts")
    mutant = fault.planted_in("a = 1\nif b < c:\n    pass\n")
    assert (mutant.line, mutant.text) == (2, "a = 1\nif b <= c:\n    pass\n")


@pytest.mark.parametrize("source", ["", "b < c\nb < c\n"])
def test_a_text_that_does_not_stand_there_just_once_is_told(source):
    with pytest.raises(ValueError, match=r"a\.module: 'b < c' stands there \d times: must be once"):
        Fault("a.module", "b < c", "b <= c", "").planted_in(source)


def test_each_fault_fits_its_module_and_says_what_it_means_and_each_module_has_tests():
    found = faults()
    assert len(found) >= 100
    assert all(fault.means and fault.text != fault.instead for fault in found)
    for name in {fault.module for fault in found}:
        module = module_of(name)
        assert module.path.exists(), name
        assert module.tests, name
    for fault in found:
        fault.planted_in(module_of(fault.module).path.read_text())
