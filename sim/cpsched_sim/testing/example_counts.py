"""How many examples a property tries: its own number, in the measure of Hypothesis's profile in force."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

USUAL = 100
"""The examples of Hypothesis's own profile: under it each property tries as many as it says."""


def tries(many: int, **further: Any) -> settings:
    """Settings for a property that tries `many` examples, and at least three; no example has a deadline.

    A profile with `max_examples=25` (`pytest --hypothesis-profile NAME`) makes it a quarter of them. `further` are
    other settings of Hypothesis.
    """
    return settings(max_examples=max(3, many * settings().max_examples // USUAL), deadline=None, **further)
