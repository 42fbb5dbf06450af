"""Rankings: pairs with shared jobs, seeds that do not count as workloads, and insignificant differences."""

import math

import numpy as np
import pytest

from cpsched_sim.experiments.bootstrap_statistics import margins_of_error
from cpsched_sim.study.policy_ranking import compare_policies, rank_policies, rows_shared_by_all_policies


def row(policy, value, trace="a", seed=0, drawn=False, outcome="ended", digest="", case=""):
    return {
        "policy": policy, "bsld": value, "trace": trace, "system": "", "load": 1.0, "window": "whole",
        "site_policy": "none", "seed": seed, "drawn": drawn, "outcome": outcome, "case": case,
        "digest": digest or f"{policy}{trace}{seed}",
    }  # fmt: skip


def test_ratios_are_paired_by_workload():
    rows = [
        row(policy, each * scale, trace)
        for policy, each in (("x", 2), ("y", 1))
        for trace, scale in (("a", 1), ("b", 50))
    ]
    found = compare_policies(rows, "bsld", "x", "y")
    assert (found.ratio, found.units, found.of) == (pytest.approx(2.0), 2, "workloads")
    assert found.low == pytest.approx(2.0)  # whatever the traces differ by, the pairs do not


def test_interval_uses_logarithms():
    logs = np.array([0.1, 0.4, 0.2, 0.3, 0.2])
    rows = [row("x", math.exp(log), trace) for trace, log in zip("abcde", logs, strict=True)]
    rows += [row("y", 1.0, trace) for trace in "abcde"]
    found, (margin,) = compare_policies(rows, "bsld", "x", "y"), margins_of_error([logs])
    assert (found.low, found.high) == pytest.approx((math.exp(0.24 - margin), math.exp(0.24 + margin)))


def test_two_different_workloads_have_no_interval():
    rows = [row(policy, value, trace) for policy, trace, value in (("x", "a", 1.0), ("x", "b", 3.0), ("y", "a", 1.0))]
    found = compare_policies([*rows, row("y", "b", "b") | {"bsld": 1.0}], "bsld", "x", "y")
    assert (found.units, found.low, found.high) == (2, None, None)


def test_seeds_of_one_workload_count_once():
    rows = [row("x", value, "a", seed) for seed, value in enumerate((2.0, 2.0, 2.0))] + [row("x", 1.0, "b", 0)]
    rows += [row("y", 1.0, "a", seed, digest="ya") for seed in range(3)] + [row("y", 1.0, "b", 0)]
    found = compare_policies(rows, "bsld", "x", "y")
    assert (found.units, found.ratio) == (2, pytest.approx(math.sqrt(2)))


def test_one_replay_for_several_seeds_is_one_unit():
    rows = [row(policy, 2.0, "a", seed, digest=policy) for policy in "xy" for seed in range(3)]
    found = compare_policies(rows, "bsld", "x", "y")
    assert (found.units, found.low) == (1, None)


def test_seeds_are_units_of_synthetic_trace():
    rows = [row(policy, 1.0 + seed, "a", seed, drawn=True) for policy in "xy" for seed in range(3)]
    assert compare_policies(rows, "bsld", "x", "y").of == "workloads"


def test_ranking_marks_insignificant_differences():
    noise = (1.0, 1.2, 0.9, 1.1, 0.95, 1.05)
    rows = [row("good", 1.0 * each, trace) for trace, each in zip("abcdef", noise, strict=True)]
    rows += [row("like it", 1.0 * each, trace) for trace, each in zip("abcdef", noise[::-1], strict=True)]
    rows += [row("bad", 5.0 * each, trace) for trace, each in zip("abcdef", noise, strict=True)]
    places = rank_policies(rows, "bsld")
    assert [place.name for place in places][2] == "bad"
    assert {place.name: place.alike for place in places} == {"good": ("like it",), "like it": ("good",), "bad": ()}


def test_higher_is_better_where_defined():
    rows = [{**row(policy, 1.0), "utilization": value} for policy, value in (("low", 0.2), ("high", 0.9))]
    assert [place.name for place in rank_policies(rows, "utilization")] == ["high", "low"]


def test_ranks_only_common_workloads():
    rows = [row("x", 1.0, "a"), row("y", 2.0, "a"), row("x", 9.0, "b"), row("y", 1.0, "b", outcome="failed")]
    assert {each["trace"] for each in rows_shared_by_all_policies(rows, "bsld")} == {"a"}
    assert [place.name for place in rank_policies(rows, "bsld")] == ["x", "y"]


@pytest.mark.parametrize(("x", "y"), [(0.0, 1.0), (1.0, 0.0)])
def test_zero_figure_has_no_ratio(x, y):
    assert compare_policies([row("x", x), row("y", y)], "bsld", "x", "y") is None


def test_many_policies_on_two_workloads_have_no_finite_interval():
    rows = [row(f"p{at}", 1.0 + at * scale, trace) for at in range(20) for trace, scale in (("a", 1), ("b", 9))]
    assert all(len(place.alike) == 19 for place in rank_policies(rows, "bsld"))


def test_ranking_intervals_are_simultaneous():
    logs = (0.03, 0.06, 0.02, 0.05, 0.01, 0.06, 0.04, 0.02)
    rows = [row("x", 1.0, str(at)) for at in range(8)]
    rows += [row("y", math.exp(log), str(at)) for at, log in enumerate(logs)]
    assert [place.alike for place in rank_policies(rows, "bsld")] == [(), ()]
    noise = np.random.default_rng(1).normal(0, 1, (8, 8))
    more = [*rows, *(row(f"z{name}", math.exp(noise[name, at]), str(at)) for name in range(8) for at in range(8))]
    found = {place.name: place.alike for place in rank_policies(more, "bsld")}
    assert "y" in found["x"]


def test_named_cases_are_not_ranked():
    rows = [row("x", 1.0), row("y", 2.0), row("z", 0.5, case="alone")]
    assert [place.name for place in rank_policies(rows, "bsld")] == ["x", "y"]
