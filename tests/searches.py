"""What tests and studies ask of a search, and `lookahead` itself does not."""

from __future__ import annotations

from cpsched.handles import Reals
from cpsched.kernels.jit import kernel
from cpsched.kernels.search_state import Search


@kernel
def weights(search: Search, count: int) -> Reals:
    """What a second costs of each of `count` queued jobs, by queue position, as the last round had it."""
    return search.weight[:count].copy()
