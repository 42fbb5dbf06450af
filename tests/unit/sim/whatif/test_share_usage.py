"""Usage by account compared with shares, within a window."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpsched_sim.experiments.bootstrap_statistics import BlockBootstrap
from cpsched_sim.site.policy_file import parse_site_policy_file
from cpsched_sim.whatif.whatif_results import usage_against_shares
from cpsched_sim.whatif.window_metrics import SharedWindowFacts, WindowSchedule, actual_schedule
from tests.unit.sim.whatif.accounting import a_line, a_window

POLICY = "accounts: { phys: { shares: 3, users: [ada] }, bio: { shares: 1, users: [bob] } }\n"


@pytest.fixture
def window(tmp_path):
    """Both want the whole machine of 20 cores for two hours of the day, and `bio` came first."""
    whole = {"NNodes": 5, "NCPUS": 20, "NodeList": "a[1-3],b[1-2]"}
    lines = [a_line(1, 0, 0, 7200, User="bob", Account="bio", **whole), a_line(2, 0, 7200, 14400, **whole)]
    window = a_window(tmp_path, lines)
    site, jobs = parse_site_policy_file(Path("p.yaml"), POLICY).with_users_of(window.jobs)
    return replace(window, site=site, jobs=jobs, to_s=window.from_s + 60 + 3 * 3600)


def facts_of(window):
    cores = np.array([item.job.request.units * item.job.request.per_unit[0] for item in window.jobs], np.int64)
    return SharedWindowFacts.of(window, BlockBootstrap.of(window.from_s, window.to_s), cores, [actual_schedule(window)])


def test_usage_in_window_is_compared_with_due_shares(window):
    found = usage_against_shares(facts_of(window), actual_schedule(window))
    rows = {row["account"]: row for row in found["accounts"]}
    assert (rows["phys"]["share"], rows["bio"]["share"]) == (0.75, 0.25)
    assert rows["bio"]["used"] == pytest.approx(2 / 3), "two of three hours; the fourth is beyond the window"
    assert rows["phys"]["due"] == pytest.approx(2 / 3), "three quarters, but no more than its jobs could use"
    assert found["distance"] == pytest.approx(1 / 3)


def test_distance_is_zero_if_usage_equals_due(window):
    made = actual_schedule(window)
    turned = WindowSchedule(made.arrival_s, made.start_s[::-1].copy(), made.end_s[::-1].copy())
    assert usage_against_shares(facts_of(window), turned)["distance"] == pytest.approx(0.0)


def test_gives_nothing_without_shares(window):
    assert usage_against_shares(facts_of(replace(window, site=None)), actual_schedule(window)) is None


def test_schedule_after_window_gives_nothing(window):
    made = actual_schedule(window)
    late = WindowSchedule(made.arrival_s + 10**6, made.start_s + 10**6, made.end_s + 10**6)
    assert usage_against_shares(facts_of(window), late) is None
