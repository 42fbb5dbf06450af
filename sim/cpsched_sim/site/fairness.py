"""Measure fairness: usage compared with shares, and slowdowns by user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cpsched.metrics import FloatArray, Metric, ScheduleData
from cpsched.model import Job
from cpsched_sim.site.fair_share import FairShareTree
from cpsched_sim.site.policy_file import SitePolicyFile

WINDOW_S = 86_400
"""Length in seconds of the windows in which usage is compared with shares."""


@dataclass(frozen=True, slots=True, eq=False)
class AccountUsageByWindow:
    """Usage by account in consecutive windows.

    The first window begins with the first submission.

    - `accounts`: the names; `used`: float64[A, K], processor seconds in each of K windows.
    - `due`: float64[A, K], the part of each window's usage due to each account: according to its share, but at most
      what its jobs could have used (see `account_usage_by_window`).
    """

    accounts: tuple[str, ...]
    used: FloatArray
    due: FloatArray

    @property
    def usage_shares(self) -> FloatArray:
        """Return usage as a fraction of all usage in its window, float64[A, K].

        The fraction is 0 in a window without usage.
        """
        total = self.used.sum(axis=0)
        parts: FloatArray = np.divide(self.used, total, out=np.zeros_like(self.used), where=total > 0)
        return parts

    @property
    def misallocated_share(self) -> float:
        """Return the fraction of usage by accounts beyond what was due to them.

        The fraction is from 0 to 1. In each window, it is half the sum of |fraction used - fraction due|. The mean over
        windows is weighted by their usage.
        """
        total = self.used.sum(axis=0)
        apart = np.abs(self.usage_shares - self.due).sum(axis=0) / 2
        return float((apart * total).sum() / total.sum()) if total.sum() else 0.0


def account_machine_shares(policy_file: SitePolicyFile) -> dict[str, float]:
    """Return the share of the machine for each account with users."""
    accounts = policy_file.policy.accounts
    part, found = FairShareTree.from_accounts(accounts).normalized_shares, dict[str, float]()
    for row in accounts.associations:
        if row.user and row.account not in found:
            found[row.account] = float(part[row.parent])
    return found


def account_usage_by_window(
    measures: ScheduleData, shares: Mapping[str, float], window_s: int = WINDOW_S
) -> AccountUsageByWindow:
    """Return usage and usage due, by account and by window of `window_s` seconds.

    The total usage in a window is divided among the accounts in proportion to their shares. But no account is due more
    than its jobs in the system could have used in that window. The others divide the remainder.
    """
    names = tuple(sorted({job.account for job in measures.jobs}))
    at = {name: place for place, name in enumerate(names)}
    row = np.array([at[job.account] for job in measures.jobs], np.int64)
    begin_s, end_s = int(measures.submit_s.min()), int(measures.end_s.max())
    count = max(1, -(-(end_s - begin_s) // window_s))
    used, due = np.zeros((len(names), count)), np.zeros((len(names), count))
    share = np.array([shares.get(name, 0.0) for name in names])
    for k in range(count):
        low, high = begin_s + k * window_s, begin_s + (k + 1) * window_s
        there = np.flatnonzero((measures.submit_s < high) & (measures.end_s > low))
        start_s, end, processors = measures.start_s[there], measures.end_s[there], measures.processors[there]
        ran_s = np.clip(np.minimum(end, high) - np.maximum(start_s, low), 0, None)
        used[:, k] = np.bincount(row[there], processors * ran_s, len(names))
        left_s = end - np.maximum(start_s, np.minimum(low, end))
        could_s = np.minimum(left_s, high - np.maximum(measures.submit_s[there], low))
        demand = np.bincount(row[there], processors * could_s, len(names)).astype(np.float64)
        due[:, k] = max_min_share(float(used[:, k].sum()), share, demand)
    total = used.sum(axis=0)
    return AccountUsageByWindow(names, used, np.divide(due, total, out=np.zeros_like(due), where=total > 0))


def max_min_share(amount: float, share: FloatArray, demand: FloatArray) -> FloatArray:
    """Divide `amount` among accounts by `share`, up to each account's `demand`.

    This is max-min fairness.
    """
    got, open_ = np.zeros(len(share)), demand > 0
    weight = np.where(share > 0, share, 1e-9)
    while amount > 1e-9 and open_.any():
        part = np.where(open_, amount * weight / weight[open_].sum(), 0.0)
        full = open_ & (part >= demand - got)
        if not full.any():
            return got + part
        amount -= float((demand - got)[full].sum())
        got[full] = demand[full]
        open_ &= ~full
    return got


def mean_by_job_attribute(jobs: Sequence[Job], values: FloatArray, key: str) -> dict[str, float]:
    """Return a column's mean for each account, QOS or user (`key`) of the jobs."""
    names, row = np.unique([getattr(job, key) for job in jobs], return_inverse=True)
    means = np.bincount(row, values) / np.bincount(row)
    return dict(zip(names.tolist(), means.tolist(), strict=True))


def gini(values: npt.ArrayLike) -> float:
    """Return the Gini index of values.

    It is 0 if all are equal, and almost 1 if one of many values is the whole sum.
    """
    column = np.sort(np.asarray(values, np.float64))
    n, total = len(column), column.sum()
    return float((2 * np.arange(1, n + 1) - n - 1) @ column / (n * total)) if total > 0 else 0.0


def jain(values: npt.ArrayLike) -> float:
    """Return Jain's fairness index of n values.

    It is 1 if all are equal, and 1/n if all but one are 0.
    """
    column = np.asarray(values, np.float64)
    squares = float((column**2).sum())
    return float(column.sum() ** 2 / (len(column) * squares)) if squares else 1.0


def user_slowdowns(measures: ScheduleData) -> list[float]:
    """Return the mean bounded slowdown for each user."""
    return list(mean_by_job_attribute(measures.jobs, measures.bounded_slowdown, "user").values())


USER_GINI = Metric(
    "user_gini", "Gini users", "", "Gini index of the users' mean bounded slowdowns", "Gini 1912", "lower",
    lambda m: gini(user_slowdowns(m)),
)  # fmt: skip
USER_JAIN = Metric(
    "user_jain", "Jain users", "", "Jain's index of the users' mean bounded slowdowns", "Jain et al. 1984", "higher",
    lambda m: jain(user_slowdowns(m)),
)  # fmt: skip


def site_policy_metrics(policy_file: SitePolicyFile) -> tuple[Metric, ...]:
    """Return the metrics that a site policy adds to every table."""
    shares = account_machine_shares(policy_file)
    distance = Metric(
        "share_distance", "off share", "",
        "share of usage by accounts beyond what was due to them, in windows of one day", "cpsched",
        "lower", lambda m: account_usage_by_window(m, shares).misallocated_share,
    )  # fmt: skip
    return distance, USER_GINI, USER_JAIN


def fairness_by_account_and_qos(measures: ScheduleData, policy_file: SitePolicyFile) -> dict[str, Any]:
    """Return jobs, waits and usage compared with shares, by account and QOS."""
    shares, use = (
        account_machine_shares(policy_file),
        account_usage_by_window(measures, account_machine_shares(policy_file)),
    )
    total = use.used.sum()
    waits, slow = measures.wait_s, measures.bounded_slowdown
    of_use = dict(zip(use.accounts, (use.used.sum(axis=1) / total if total else use.used[:, 0]).tolist(), strict=True))

    def summary_by_attribute(key: str) -> dict[str, dict[str, Any]]:
        ones = np.ones(len(measures.jobs))
        names, row = np.unique([getattr(job, key) for job in measures.jobs], return_inverse=True)
        jobs = dict(zip(names.tolist(), np.bincount(row, ones).astype(int).tolist(), strict=True))
        wait, bsld = mean_by_job_attribute(measures.jobs, waits, key), mean_by_job_attribute(measures.jobs, slow, key)
        return {name: {"jobs": jobs[name], "mean_wait_s": wait[name], "bsld": bsld[name]} for name in jobs}

    accounts = {
        name: {
            "share": shares.get(name, 0.0),
            "used": of_use[name],
            **row,
            "used_by_window": use.usage_shares[at].round(4).tolist(),
            "due_by_window": use.due[at].round(4).tolist(),
        }
        for at, (name, row) in enumerate(sorted(summary_by_attribute("account").items()))
    }
    return {"accounts": accounts, "qos": summary_by_attribute("qos")}
