"""CPH (mod17 section 4): HCP as that paper uses it, for the least total wait, with the rules of its PRB."""

from __future__ import annotations

from cpsched.dispatchers.cp.kit import recipe

LISTED = (
    recipe(
        "cph",
        "Plans starts on pools for the least total wait; order and nodes by the priority rule of prb.",
        "mod17 section 4",
        jobs="first",
        control="doubles",
        running="remaining",
        objective="wait",
        priority="urgency",
        allocation="best-fit",
    ),
)
