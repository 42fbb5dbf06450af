"""A line over time as SVG, for a wall: where it is now, where it was, and how high it ever was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from cpsched.formatting import span

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 600, 360, 34, 34


def line_chart(points: Sequence[tuple[int, float]], title: str, said: Callable[[float], str]) -> str:
    """Values over seconds, from 0 up; empty with fewer than two. `said` puts a value into words."""
    if len(points) < 2:
        return ""
    from_s, to_s = points[0][0], points[-1][0]
    most = max(value for _, value in points) or 1.0
    deep = _HEIGHT - _TOP - _BOTTOM

    def at(point: tuple[int, float]) -> str:
        x = _WIDTH * (point[0] - from_s) / max(1, to_s - from_s)
        return f"{x:.1f},{_TOP + deep * (1 - point[1] / most):.1f}"

    line = " ".join(map(at, points))
    floor = _TOP + deep
    words = f"{title}: {said(points[-1][1])} now, {said(most)} at most in {span(to_s - from_s)}"
    return (
        f'<svg class="line" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(words)}">'
        f"<title>{escape(words)}</title>"
        f'<path class="g-grid" d="M0 {_TOP}H{_WIDTH}M0 {floor}H{_WIDTH}"/>'
        f'<polygon class="line-area" points="0,{floor} {line} {_WIDTH},{floor}"/><polyline points="{line}"/>'
        f'<text class="line-text" x="0" y="{_TOP - 9}">{escape(said(most))}</text>'
        f'<text class="line-text" x="0" y="{_HEIGHT - 7}">{escape(span(to_s - from_s))} ago</text>'
        f'<text class="line-text" text-anchor="end" x="{_WIDTH}" y="{_HEIGHT - 7}">now</text></svg>'
    )
