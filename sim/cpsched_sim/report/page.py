"""One page of HTML with nothing from elsewhere, for screens light and dark, phones, and paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from cpsched_sim import html
from cpsched_sim.errors import Unusable, shown

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2024; --quiet: #6b7280; --band: #e7eaee; --good: #1a7f37;
  --bad: #b42318; --line0: #2563eb; --line1: #d97706; --line2: #059669; --line3: #9333ea; --line4: #dc2626;
  --line5: #0891b2; --line6: #65a30d; --line7: #db2777 }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e6e8ea; --quiet: #9aa3ad;
  --band: #2a3036; --good: #4ac26b; --bad: #ff7b6b; --line0: #6ea8fe; --line1: #f5b04d; --line2: #4fd1a1;
  --line3: #c792ff; --line4: #ff8a80; --line5: #4dd0e1; --line6: #aed581; --line7: #f48fb1 } }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--band) }
.said { font-size: 1.15rem } .verdict { padding: .6rem 1rem; border-left: .35rem solid var(--quiet);
  background: var(--band) } .verdict.good, .verdict.fair { border-color: var(--good) }
.verdict.poor, .verdict.hopeless { border-color: var(--bad) }
figure { margin: .6rem 0 }
svg { display: block; width: 100%; height: auto; max-width: 48rem } svg text { font-family: system-ui, sans-serif }
.table { overflow-x: auto } table { border-collapse: collapse; margin: .6rem 0; font-size: .9rem }
caption { text-align: left; font-weight: 600 }
td:not(:first-child):not(:last-child) { white-space: nowrap }
th, td { padding: .2rem .7rem .2rem 0; text-align: right;
  border-bottom: 1px solid var(--band); vertical-align: top } th:first-child, td:first-child { text-align: left }
p.quiet, summary { color: var(--quiet) } .told { color: var(--ink) }
@media screen and (max-width: 40rem) { figure { overflow-x: auto } svg { min-width: 34rem }
  .table td:first-child, .table th:first-child { min-width: 7.5rem } .table td:last-child { min-width: 5rem } }
@media print { :root { --page: #fff; --ink: #000; --quiet: #555; --band: #ddd } body { max-width: none; padding: 0;
  font-size: 10pt } details:not([open]) { display: none } h2, caption { break-after: avoid }
  svg, tr { break-inside: avoid } .table { overflow: visible }
  td:not(:first-child):not(:last-child) { white-space: normal; overflow-wrap: anywhere } }
"""
HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


def document(title: str, parts: Iterable[str]) -> str:
    """The whole page: a title, and parts that are HTML."""
    head = [HEAD, f"<title>{escape(shown(title))}</title><style>{STYLE}</style></head><body><main>"]
    return "\n".join([*head, f"<h1>{escape(shown(title))}</h1>", *parts, "</main></body></html>"]) + "\n"


def paragraph(text: str, tag: str = "p") -> str:
    """A text as a paragraph; without a tag, escaped and no more."""
    safe = escape(shown(text, 2000))
    return f"<{tag}>{safe}</{tag}>" if tag else safe


def picture(draw: Callable[[], str]) -> Iterator[str]:
    """A drawing, or why there is none."""
    try:
        yield f"<figure>{draw()}</figure>"
    except Unusable as error:  # no matplotlib: the numbers are there all the same
        yield f'<p class="quiet">{escape(str(error))}</p>'


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is too wide."""
    return f'<div class="table">{html.table(title, heads, rows)}</div>'
