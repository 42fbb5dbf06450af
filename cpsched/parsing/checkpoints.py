"""Parse the time of a job's last checkpoint from the job's comment."""

from __future__ import annotations

import re

_CHECKPOINT = re.compile(r"(?<!\S)checkpoint=([0-9]{1,12})(?!\S)")
"""Pattern for a mark delimited by whitespace. More than 12 digits are not a Unix time."""


def last_checkpoint_s(comment: str, start_s: int, now_s: int) -> int | None:
    """Return the latest `checkpoint=<unix time>` in a job's comment, or None.

    Times before the job's start or in the future are ignored, because users write the comment.
    """
    times = (int(digits) for digits in _CHECKPOINT.findall(comment))
    return max((at_s for at_s in times if start_s <= at_s <= now_s), default=None)
