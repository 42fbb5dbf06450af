"""Compute each account's usage in a schedule, and its distance from the shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from cpsched.metrics import ScheduleData
from cpsched.model import NEVER
from cpsched_sim.site.fairness import WINDOW_S, AccountUsageByWindow, account_machine_shares, account_usage_by_window
from cpsched_sim.whatif.whatif_window import OUTAGE
from cpsched_sim.whatif.window_metrics import SharedWindowFacts, WindowSchedule


def usage_against_shares(facts: SharedWindowFacts, made: WindowSchedule) -> dict[str, Any] | None:
    """Return each account's fraction of the usage, and the distance from the shares.

    Return None if the site's policy is unknown, or if no job ran in the window. As in `account_usage_by_window`, each
    day's usage is divided among the accounts whose jobs could have used it, in proportion to their shares. The distance
    is the fraction of the usage that accounts had beyond their part.
    """
    window = facts.window
    if window.site is None:
        return None
    start_s, arrival_s = np.maximum(made.start_s, window.from_s), np.maximum(made.arrival_s, window.from_s)
    is_there = (made.start_s != NEVER) & (window.role != OUTAGE) & (arrival_s < window.to_s) & (made.end_s > start_s)
    if not is_there.any():
        return None
    jobs = [window.jobs[at].job for at in np.flatnonzero(is_there).tolist()]
    measures = ScheduleData(
        arrival_s[is_there], start_s[is_there], made.end_s[is_there], facts.processors[is_there], jobs=jobs
    )
    lasts_s = window.to_s - int(arrival_s[is_there].min())
    days = max(1, round(lasts_s / WINDOW_S))
    shares = account_machine_shares(window.site)
    whole = account_usage_by_window(measures, shares, -(-lasts_s // days))
    use = AccountUsageByWindow(whole.accounts, whole.used[:, :days], whole.due[:, :days])
    return {"distance": use.misallocated_share, "accounts": _account_rows(use, shares)}


def _account_rows(use: AccountUsageByWindow, shares: dict[str, float]) -> list[dict[str, Any]]:
    total = max(1e-9, float(use.used.sum()))
    used, due = use.used.sum(axis=1), (use.due * use.used.sum(axis=0)).sum(axis=1)
    return [
        {
            "account": name, "share": shares.get(name, 0.0), "due": float(due[at]) / total,
            "used": float(used[at]) / total,
        }
        for at, name in enumerate(use.accounts)
    ]  # fmt: skip
