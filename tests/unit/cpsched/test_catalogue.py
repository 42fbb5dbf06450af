from typing import Literal

import pytest

from cpsched import catalogue
from cpsched.catalogue import Parameter
from cpsched.errors import InvalidValue, UnknownName


@pytest.mark.parametrize("entry", [*catalogue.DISPATCHERS, *catalogue.PREDICTORS], ids=lambda entry: entry.name)
def test_every_entry_builds_with_its_defaults_and_says_what_it_is(entry):
    built = entry.build()
    assert callable(getattr(built, "decide", None) or getattr(built, "predict", None))
    assert entry.summary.endswith(".")
    assert entry.source


def test_names_are_unique():
    for entries in (catalogue.DISPATCHERS, catalogue.PREDICTORS):
        names = [entry.name for entry in entries]
        assert len(set(names)) == len(names)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"unknown predictor 'walltme'; known: .*walltime"):
        catalogue.predictor("walltme")


def test_an_unknown_parameter_lists_the_known_ones():
    with pytest.raises(UnknownName, match="parameter of walltime"):
        catalogue.predictor("walltime", {"k": "3"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (float, "2.5", 2.5),
        (bool, "True", True),
        (int | None, "none", None),
        (int | None, "4", 4),
        (Literal["a", "b"], "b", "b"),
        (str | None, "file", "file"),
    ],
)
def test_parameters_are_read_by_their_type(kind, text, value):
    assert Parameter("p", kind, None).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [(int, "x", "must be int"), (bool, "7", "must be bool"), (Literal["a", "b"], "c", "one of a, b")],
)
def test_a_bad_value_names_parameter_value_and_rule(kind, text, rule):
    with pytest.raises(InvalidValue, match=f"p={text}: .*{rule}"):
        Parameter("p", kind, None).parse(text)
