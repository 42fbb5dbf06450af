"""Parse Slurm's settings of preemption."""

from __future__ import annotations

from typing import cast, get_args

from cpsched.errors import InvalidValue
from cpsched.site.preemption import PreemptMode, VictimOrder
from cpsched.slurm_text.limits import parse_slurm_time_s
from cpsched.slurm_text.option_lists import OptionList


def parse_preempt_mode(text: str) -> PreemptMode | None:
    """Return a `PreemptMode` without options, or None for `cluster` or empty text.

    Raise `InvalidValue` for an unknown mode.

    >>> parse_preempt_mode("GANG,SUSPEND"), parse_preempt_mode("REQUEUE"), parse_preempt_mode("cluster")
    ('suspend', 'requeue', None)
    """
    words = {word.strip().lower() for word in text.split(",")} - {"", "gang", "within", "priority"}
    if not words or words == {"cluster"}:
        return None
    (word,) = words if len(words) == 1 else ("",)
    for mode in get_args(PreemptMode):
        if mode == word:
            return cast(PreemptMode, mode)
    raise InvalidValue("PreemptMode", text, f"must be one of {', '.join(get_args(PreemptMode))}")


def parse_preempt_exempt_time_s(text: str) -> int | None:
    """Return a `PreemptExemptTime` in seconds, or None if it is not set (`-00:00:01`)."""
    return None if text.strip() in ("", "-00:00:01") else parse_slurm_time_s(text)


def parse_victim_order(preempt_parameters: str, scheduler_parameters: str) -> tuple[VictimOrder, tuple[str, ...]]:
    """Return the order in Slurm's `PreemptParameters` and `SchedulerParameters`, and the options that change more.

    All releases also read the options of the order with the prefix `preempt_` from `SchedulerParameters`. Releases
    before 23.02 have no `PreemptParameters`.
    """
    preempt, scheduler = OptionList(preempt_parameters), OptionList(scheduler_parameters)
    count = preempt.find_int("reorder_count")
    if count is None:
        count = scheduler.find_int("preempt_reorder_count")
    order = VictimOrder(
        preempt.has("youngest_first") or scheduler.has("preempt_youngest_first"),
        preempt.has("strict_order") or scheduler.has("preempt_strict_order"),
        1 if count is None or count < 0 else count,
    )
    known = {"youngest_first", "strict_order", "reorder_count"}
    return order, tuple(name for name, _ in preempt.list_words() if name not in known)
