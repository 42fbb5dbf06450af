"""PCP'20 (pcp20): start times and places in one constraint model whose size does not depend on the system's."""

from __future__ import annotations

from cpsched.dispatchers.cp.kit import ConstraintDispatcher, recipe

PCP20 = recipe(
    "pcp20",
    "Plans start times and places of all that could start now, for least slowdown, in one constraint model.",
    "pcp20; search control of cp19",
    jobs="startable",
    control="stops",
    running="at-least-1s",
    objective="slowdown",
    priority="slowdown",
    allocation="positions",
)
LISTED = (PCP20,)


def pcp20(**limits: object) -> ConstraintDispatcher:
    """The dispatcher, with other `limits` than its own."""
    return ConstraintDispatcher(**{**PCP20.fixed, **limits})  # type: ignore[arg-type]
