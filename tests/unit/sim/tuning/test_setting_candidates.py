"""What is tried: the goals with each run-time model, the present setting first, each once, and each can be made."""

import pytest

from cpsched.errors import UnknownName
from cpsched.goal_presets import PRESETS
from cpsched.policy_spec import PolicySpec
from cpsched_sim.tuning.setting_candidates import (
    RUN_TIME_MODELS,
    describe_changes,
    expand_defaults,
    is_randomized,
    list_candidate_settings,
    to_replayable_policy,
)


@pytest.mark.parametrize(
    "present",
    [
        PolicySpec("lookahead"),
        PolicySpec("easy"),
        PolicySpec.parse("lookahead / quantile objective=slowdown effort=30 horizon=50 reserve_by=walltime"),
    ],
    ids=str,
)
def test_present_setting_is_first_and_none_is_repeated(present):
    found = list_candidate_settings(present)
    assert found[0] == present
    for predictor, *_ in RUN_TIME_MODELS:
        tried = {str(expand_defaults(spec)["objective"]) for spec in found[1:] if spec.predictor == predictor}
        assert set(PRESETS) <= tried <= {*PRESETS, str(expand_defaults(present).get("objective"))}
    assert len({repr(expand_defaults(spec)) for spec in found}) == len(found)
    for spec in found:
        spec.build()
    kept = present.dispatcher_settings.get("horizon", "100")
    assert {str(expand_defaults(spec)["horizon"]) for spec in found[1:]} == {kept}


def test_explicit_default_equals_default():
    assert len(list_candidate_settings(PolicySpec.parse("lookahead objective=balance"))) == len(
        list_candidate_settings(PolicySpec("lookahead"))
    )


def test_drops_unreplayable_settings_and_seeds_only_random_ones():
    spec = PolicySpec.parse("lookahead limit_s=0.1 site_weight=1 horizon=50")
    assert dict(to_replayable_policy(spec, 2).dispatcher_settings) == {"horizon": "50", "seed": "2"}
    assert is_randomized(spec)
    assert not is_randomized(PolicySpec("easy"))
    assert to_replayable_policy(PolicySpec("easy"), 2) == PolicySpec("easy")


def test_describes_changes_in_text():
    present = PolicySpec("lookahead")
    other = PolicySpec.parse("lookahead / last-two objective=slowdown reserve_by=walltime")
    assert describe_changes(present, other) == "predictor=last-two objective=slowdown reserve_by=walltime"
    assert describe_changes(present, PolicySpec.parse("lookahead effort=none")) == "nothing"


def test_rejects_unknown_dispatcher():
    with pytest.raises(UnknownName):
        list_candidate_settings(PolicySpec("unknown"))
