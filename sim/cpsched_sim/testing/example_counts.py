"""Set the number of examples of a property: its own number, scaled by the effective Hypothesis profile."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 100
"""Number of examples in Hypothesis's default profile, under which each property uses its own number."""


def tries(many: int, **further: Any) -> settings:
    """Return settings for a property with `many` examples, at least three, and no deadline.

    A profile with `max_examples=25` (`pytest --hypothesis-profile NAME`) reduces it to a quarter. `further` are
    other settings of Hypothesis.
    """
    return settings(max_examples=max(3, many * settings().max_examples // USUAL), deadline=None, **further)
