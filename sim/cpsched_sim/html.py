"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(title: str, heading: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A table under a title, with notes below. Every text is shown as it is, whatever markup it holds.

    A row that is shorter than the heading ends in a cell that is as wide as the rest.
    """
    lines = ["<table>", f"<caption>{escape(title)}</caption>", f"<thead>{_row('th', heading, len(heading))}</thead>"]
    lines += ["<tbody>", *(_row("td", row, len(heading)) for row in rows), "</tbody>", "</table>"]
    return "\n".join([*lines, *(f"<p>{escape(note)}</p>" for note in notes)])


def _row(kind: str, cells: Sequence[str], width: int) -> str:
    last = len(cells) - 1
    spans = [f' colspan="{width - last}"' if at == last and last + 1 < width else "" for at in range(len(cells))]
    written = (f"<{kind}{span}>{escape(cell)}</{kind}>" for cell, span in zip(cells, spans, strict=True))
    return f"<tr>{''.join(written)}</tr>"
