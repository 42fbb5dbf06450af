from typing import Literal

import pytest

from cpsched import registry
from cpsched.errors import InvalidValue, UnknownName
from cpsched.registration import Parameter, Registration
from cpsched.registry import DISPATCHERS, PREDICTORS

OWN = [*DISPATCHERS.builtins(), *PREDICTORS.builtins()]


@pytest.mark.parametrize("listing", OWN, ids=lambda listing: listing.name)
def test_every_entry_builds_with_defaults_and_summary(listing):
    assert isinstance(listing.build(), DISPATCHERS.base | PREDICTORS.base)
    assert (listing.summary[-1:], bool(listing.source)) == (".", True)


def test_names_are_unique():
    names = [listing.name for listing in OWN]
    assert len(set(names)) == len(names)


def test_unknown_name_lists_known_ones_and_suggestion():
    with pytest.raises(UnknownName, match=r"unknown predictor 'walltme'; known: .*; did you mean 'walltime'\?$"):
        registry.PREDICTORS.build("walltme")
    known = ", ".join(sorted(listing.name for listing in PREDICTORS.builtins()))
    with pytest.raises(UnknownName, match=f"'crystal'; known: {known}$"):
        registry.PREDICTORS.build("crystal")


def test_unknown_parameter_lists_known_ones():
    with pytest.raises(UnknownName, match="parameter of walltime"):
        registry.PREDICTORS.build("walltime", {"k": "3"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (float, "2.5", 2.5),
        (bool, "True", True),
        (int | None, "none", None),
        (int | None, "", None),
        (int | None, "4", 4),
        (Literal["a", "b"], "b", "b"),
        (str | None, "file", "file"),
    ],
)
def test_parses_parameters_by_type(kind, text, value):
    assert Parameter("p", kind, None).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "rule"),
    [(int, "x", "must be int"), (bool, "7", "must be bool"), (Literal["a", "b"], "c", "one of a, b")],
)
def test_bad_value_names_parameter_value_and_rule(kind, text, rule):
    with pytest.raises(InvalidValue, match=f"p={text}: .*{rule}"):
        Parameter("p", kind, None).parse(text)


def test_variant_shows_its_defaults():
    def factory(k: int = 1, name: str = "plain") -> None: ...

    variant = Registration("three", "Three of them.", "a test", factory, {"k": 3})
    assert variant.defaults() == {"k": 3, "name": "plain"}
