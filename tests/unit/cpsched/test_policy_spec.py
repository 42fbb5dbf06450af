"""A policy as text: it is parsed as written, settings are assigned to their owner, and old journals are readable."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import pytest

from cpsched.dispatchers.list_dispatchers import ListDispatcher
from cpsched.errors import InvalidValue, UnknownName
from cpsched.policy_spec import PolicySpec
from cpsched.predictors.profile import ProfilePredictor
from cpsched.registration import FileParameter, Registration
from cpsched.registry import CORE


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("easy", PolicySpec()),
        ("easy / walltime", PolicySpec()),
        ("fcfs/last-two", PolicySpec("fcfs", "last-two")),
        (
            "list-reg / profile option=greedy remember=7 overrun=double",
            PolicySpec("list-reg", "profile", {"option": "greedy"}, {"remember": "7"}, "double"),
        ),
        ("prb ewt_file='a file.json'", PolicySpec("prb", "walltime", {"ewt_file": "a file.json"})),
    ],
)
def test_text_form_is_parsed_back(text, spec):
    assert (PolicySpec.parse(text), PolicySpec.parse(str(spec))) == (spec, spec)


@pytest.mark.parametrize("text", ["", "easy walltime more", "option=greedy"])
def test_rejects_text_without_policy(text):
    with pytest.raises(InvalidValue, match="must have the form dispatcher"):
        PolicySpec.parse(text)


def test_builds_new_policy_each_time():
    spec = PolicySpec("list-reg", "profile", {"option": "greedy"}, {"remember": "7"}, "double")
    policy = spec.build()
    assert isinstance(policy.dispatcher, ListDispatcher)
    assert isinstance(policy.predictor, ProfilePredictor)
    assert (policy.predictor.remember, policy.overrun) == (7, "double")
    assert spec.build().predictor is not policy.predictor


def test_common_setting_goes_to_both_or_named_part():
    class Seeded(ProfilePredictor):
        def __init__(self, seed: int = 0) -> None:
            super().__init__()
            self.seed = seed

    known = CORE._replace(predictors=CORE.predictors.extended_with(Registration("seeded", "", "", Seeded)))
    both = PolicySpec.of("pcp20", "seeded", {"seed": 3}, known=known)
    one = PolicySpec.of("pcp20", "seeded", {"predictor.seed": 3}, known=known)
    assert both == PolicySpec.parse(str(both), known) == PolicySpec("pcp20", "seeded", {"seed": "3"}, {"seed": "3"})
    assert one == PolicySpec("pcp20", "seeded", {}, {"seed": "3"})
    assert one.build(known=known).predictor.seed == 3


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"backfil": "shortest"}, UnknownName,
         r"unknown parameter of easy, walltime or the policy 'backfil'.*'backfill'"),
        ({"overrun": "never"}, InvalidValue, "overrun=never: must be one of one-second, double, walltime"),
        ({"effort": 3}, InvalidValue, "effort=3: is not a parameter of easy, which does not search"),
    ],
)  # fmt: skip
def test_rejects_unknown_names_and_values(settings, error, message):
    with pytest.raises(error, match=message):
        PolicySpec.of("easy", settings=settings).build()


def test_journal_form_is_unchanged():
    """Journals written before there was this value hold exactly these five fields."""
    old = {
        "dispatcher": "easy",
        "predictor": "last-two",
        "dispatcher_settings": {"backfill": "shortest"},
        "predictor_settings": {},
        "overrun": "one-second",
    }
    spec = PolicySpec(**old)
    assert json.loads(json.dumps(asdict(spec))) == old
    assert spec == PolicySpec.of("easy", "last-two", {"backfill": "shortest", "overrun": "one-second"})


def test_explicit_overrun_precedes_dispatcher_default():
    """The dispatchers of cp19, pcp20 and mod17 keep their papers' rule; all others expect the walltime."""
    papers = {"ebf", "prb", "cph", "pcp", "hcp", "pcp1", "hcp1", "pcp2", "hcp2", "pcp19", "hcp19", "pcp20"}
    for name in CORE.dispatchers.names():
        own = "one-second" if name in papers else "walltime"
        assert PolicySpec.of(name).build().overrun == own
        assert PolicySpec.of(name, settings={"overrun": None}).build().overrun == own
        for said in ("one-second", "double", "walltime"):
            spec = PolicySpec.of(name, settings={"overrun": said})
            assert (spec.build().overrun, PolicySpec.parse(str(spec))) == (said, spec)


def test_caller_opens_named_file():
    """The core opens none: the class is handed the content, the setting has the name that the mark says."""

    class Waits(ProfilePredictor):
        def __init__(self, waits_s: Annotated[Mapping[str, float] | None, FileParameter("ewt_file")] = None) -> None:
            self.waits_s = waits_s

    known = CORE._replace(predictors=CORE.predictors.extended_with(Registration("waits", "", "", Waits)))
    spec = PolicySpec.of("easy", "waits", {"ewt_file": "x.json"}, known=known)
    assert spec.build(lambda setting, path: {setting: path}, known).predictor.waits_s == {"ewt_file": "x.json"}
    with pytest.raises(InvalidValue, match=r"ewt_file=x.json: is a file path"):
        spec.build(known=known)
    assert PolicySpec("easy", "waits").build(known=known).predictor.waits_s is None
