"""The environment of PBS's own programs: their words and times are always the same."""

from __future__ import annotations

import os
from collections.abc import Mapping

FIXED = {"LC_ALL": "C", "TZ": "UTC0"}
"""Untranslated messages; PBS's programs print times in their own zone, without naming the zone."""


def environment(own: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's own environment, in which pbs.conf is found, with what is fixed."""
    return dict(os.environ if own is None else own) | FIXED
