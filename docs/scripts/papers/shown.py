"""The pictures of the papers' studies."""

from __future__ import annotations

from collections.abc import Callable

from docs.scripts.papers import cp19, debs24, mod17, pcp20

PICTURES: dict[str, Callable[[], str]] = {
    "cp19-1": cp19.figure1,
    "cp19-2": cp19.figure2,
    "cp19-2-waits": cp19.figure2_waits,
    "cp19-3": cp19.figure3,
    "cp19-3-waits": cp19.figure3_waits,
    "cp19-4": cp19.figure4,
    "cp19-4-waits": cp19.figure4_waits,
    "debs24-2": debs24.figure2,
    "debs24-3": debs24.figure3,
    "debs24-4": debs24.figure4,
    "debs24-5": debs24.figure5,
    "debs24-6": debs24.figure6,
    "debs24-7": debs24.figure7,
    "mod17-1": mod17.figure1,
    "mod17-2": mod17.figure2,
    "mod17-3": mod17.figure3,
    "mod17-4": mod17.figure4,
    "mod17-5": mod17.figure5,
    "pcp20-4": pcp20.figure4,
    "pcp20-4-waits": pcp20.figure4_waits,
    "pcp20-5": pcp20.figure5,
    "pcp20-5-waits": pcp20.figure5_waits,
    "pcp20-6": pcp20.figure6,
    "pcp20-7": pcp20.figure7,
}
"""Name of a picture, paper and figure -> the function that draws it, as SVG."""
