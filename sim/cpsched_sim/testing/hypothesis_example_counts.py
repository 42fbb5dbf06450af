"""Scale a property's number of examples by the active Hypothesis profile."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

DEFAULT_EXAMPLES = 100
"""Number of examples in Hypothesis's default profile. With this profile, each property uses its own number."""


def scaled_example_settings(many: int, **further: Any) -> settings:
    """Return settings for a property test with `many` examples and no deadline.

    The active Hypothesis profile scales `many`: `max_examples=25` (`pytest --hypothesis-profile NAME`) reduces it to a
    quarter, but to no less than three. `further` contains other Hypothesis settings.
    """
    return settings(max_examples=max(3, many * settings().max_examples // DEFAULT_EXAMPLES), deadline=None, **further)
