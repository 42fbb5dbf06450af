"""Measures of fairness on a handful of jobs."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.metrics import ScheduleData
from cpsched.model import Job, Request
from cpsched_sim.site.fairness import (
    WINDOW_S,
    account_usage_by_window,
    gini,
    jain,
    max_min_share,
    mean_by_job_attribute,
    user_slowdowns,
)


def measures(*rows):
    """(user, account, submit, start, end, processors) each."""
    jobs = [Job(id, r[2], 60, Request(1, (1,)), user=r[0], account=r[1]) for id, r in enumerate(rows)]
    columns = [np.array([row[at] for row in rows], np.int64) for at in (2, 3, 4, 5)]
    return ScheduleData(*columns, machine=8, jobs=jobs)


def test_gini_and_jain_of_equal_and_unequal_users():
    assert gini([5, 5, 5, 5]) == 0
    assert gini([0, 0, 0, 8]) == 0.75
    assert jain([5, 5, 5, 5]) == 1
    assert jain([0, 0, 0, 8]) == 0.25
    assert (gini([]), jain([0, 0])) == (0.0, 1.0)


def test_usage_is_compared_with_shares_of_present_users():
    # Day 1: physics uses 3/4 of what is used, its share is 1/2, and biology's job that waits could have used as much.
    # Day 2: biology is alone, all of it is its due.
    jobs = measures(("a", "physics", 0, 0, 300, 1), ("b", "biology", 0, 0, 100, 1),
                    ("b", "biology", 0, WINDOW_S, WINDOW_S + 400, 1))  # fmt: skip
    use = account_usage_by_window(jobs, {"physics": 0.5, "biology": 0.5})
    assert (use.accounts, use.usage_shares.tolist()) == (("biology", "physics"), [[0.25, 1.0], [0.75, 0.0]])
    assert (use.due.tolist(), use.misallocated_share) == ([[0.5, 1.0], [0.5, 0.0]], pytest.approx(0.25 / 2))


def test_due_share_is_at_most_demand():
    # Biology's share is 9/10, but its one job is over after 100 of the 400 seconds that were used.
    jobs = measures(("a", "physics", 0, 0, 300, 1), ("b", "biology", 0, 0, 100, 1))
    use = account_usage_by_window(jobs, {"physics": 0.1, "biology": 0.9})
    assert (use.due.tolist(), use.misallocated_share) == ([[0.25], [0.75]], 0)


def test_demand_of_a_window_ends_with_the_window():
    """Physics could use 100 s of the first window. The rest of its job is due in the second."""
    jobs = measures(("b", "biology", 0, 0, 300, 1), ("b", "biology", 300, 400, 700, 1),
                    ("a", "physics", WINDOW_S - 100, WINDOW_S - 100, WINDOW_S + 900, 1))  # fmt: skip
    use = account_usage_by_window(jobs, {"physics": 0.5, "biology": 0.5})
    assert use.due[:, 0].tolist() == pytest.approx([600 / 700, 100 / 700])


def test_unused_share_is_divided_by_shares():
    found = max_min_share(100.0, np.array([0.5, 0.3, 0.2]), np.array([10.0, 200.0, 200.0]))
    assert found.tolist() == pytest.approx([10, 54, 36])
    assert max_min_share(100.0, np.array([0.0, 1.0]), np.array([200.0, 30.0])).tolist() == pytest.approx([70, 30])


def test_splits_usage_at_window_end():
    jobs = measures(("a", "physics", 0, WINDOW_S - 10, WINDOW_S + 30, 2))
    assert account_usage_by_window(jobs, {"physics": 1.0}, 7 * WINDOW_S).used.tolist() == [[80.0]], "one long window"
    use = account_usage_by_window(jobs, {"physics": 1.0})
    assert use.used.tolist() == [[20, 60]]


def test_computes_means_by_account_and_user():
    jobs = measures(("a", "x", 0, 10, 20, 1), ("a", "x", 0, 30, 40, 1), ("b", "y", 0, 0, 10, 1))
    assert mean_by_job_attribute(jobs.jobs, jobs.wait_s, "account") == {"x": 20.0, "y": 0.0}
    assert user_slowdowns(jobs) == [3.0, 1.0]
