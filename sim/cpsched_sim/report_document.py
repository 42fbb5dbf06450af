"""Reports as values, rendered as Markdown and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from typing_extensions import override

from cpsched.markup import Markup, make_markup_element
from cpsched_sim.errors import InputError, quote_value

_MAX_CELL_CHARS = 2000
_MAX_MARKDOWN_ROWS = 100
"""Maximum number of rows in a Markdown table. The HTML page shows all rows."""
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
p.quiet, summary { color: var(--quiet) }
@media screen and (max-width: 40rem) { figure { overflow-x: auto } svg { min-width: 34rem }
  .table td:first-child, .table th:first-child { min-width: 7.5rem } .table td:last-child { min-width: 5rem } }
@media print { :root { --page: #fff; --ink: #000; --quiet: #555; --band: #ddd } body { max-width: none; padding: 0;
  font-size: 10pt } details:not([open]) { display: none } h2, caption { break-after: avoid }
  svg, tr { break-inside: avoid } .table { overflow: visible }
  td:not(:first-child):not(:last-child) { white-space: normal; overflow-wrap: anywhere } }
"""
_CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class ReportBlock(Protocol):
    """A part of a report."""

    def markdown(self) -> str:
        """Return the block as Markdown, without a trailing empty line."""
        ...

    def html(self) -> Markup:
        """Return the block as an HTML element."""
        ...


@dataclass(frozen=True, slots=True)
class ReportHeading(ReportBlock):
    """The heading of a section."""

    text: str

    @override
    def markdown(self) -> str:
        return f"## {escape_markdown(self.text)}"

    @override
    def html(self) -> Markup:
        return make_markup_element("h2", _shorten_line(self.text))


@dataclass(frozen=True, slots=True)
class ReportParagraph(ReportBlock):
    """A paragraph. `lead` is its first sentence in bold, and `kind` is a CSS class."""

    text: str
    kind: str = ""
    lead: str = ""

    @override
    def markdown(self) -> str:
        return (f"**{escape_markdown(self.lead)}** " if self.lead else "") + escape_markdown(self.text)

    @override
    def html(self) -> Markup:
        lead = (make_markup_element("strong", self.lead), " ") if self.lead else ()
        return make_markup_element("p", *lead, _shorten_line(self.text), class_=self.kind or None)


@dataclass(frozen=True, slots=True)
class ReportList(ReportBlock):
    """A list of sentences."""

    lines: Sequence[str]

    @override
    def markdown(self) -> str:
        return "\n".join(f"- {escape_markdown(line)}" for line in self.lines)

    @override
    def html(self) -> Markup:
        return make_markup_element("ul", *(make_markup_element("li", _shorten_line(line)) for line in self.lines))


@dataclass(frozen=True, slots=True)
class ReportTable(ReportBlock):
    """A table with a title and headings.

    In HTML, the last cell of a short row spans the remaining columns.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    @override
    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows[:_MAX_MARKDOWN_ROWS]]
        if (more := len(self.rows) - _MAX_MARKDOWN_ROWS) > 0:
            lines.append([f"{more:,} more rows are on the HTML page"])
        body = "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)
        return f"{escape_markdown(self.title)}:\n\n{body}" if self.title else body

    @override
    def html(self) -> Markup:
        caption = (make_markup_element("caption", _shorten_line(self.title)),) if self.title else ()
        head = make_markup_element("thead", self._make_row("th", self.head))
        body = make_markup_element("tbody", *(self._make_row("td", row) for row in self.rows))
        return make_markup_element("div", make_markup_element("table", *caption, head, body), class_="table")

    def _make_row(self, kind: str, cells: Sequence[str]) -> Markup:
        last, rest = len(cells) - 1, len(self.head) - len(cells) + 1
        spans = (rest if at == last and rest > 1 else None for at in range(len(cells)))
        return make_markup_element(
            "tr",
            *(
                make_markup_element(kind, _shorten_line(cell), colspan=span)
                for cell, span in zip(cells, spans, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class ReportFigure(ReportBlock):
    """A chart, only on the HTML page, with its data as a table for accessibility.

    `draw` returns SVG.
    """

    draw: Callable[[], str]
    numbers: ReportTable | None = None
    is_open: bool = False
    """Whether the page initially shows the data table."""

    @override
    def markdown(self) -> str:
        return self.numbers.markdown() if self.numbers is not None else ""

    @override
    def html(self) -> Markup:
        try:
            drawn = make_markup_element("figure", Markup(self.draw()))
        except InputError as error:  # without matplotlib, the page shows only the data table
            drawn = make_markup_element("p", str(error), class_="quiet")
        if self.numbers is None:
            return drawn
        summary = make_markup_element("summary", "Data in this chart")
        return Markup(
            drawn + make_markup_element("details", summary, self.numbers.html(), open="" if self.is_open else None)
        )


def render_markdown(title: str, blocks: Iterable[ReportBlock]) -> str:
    """Return a report as Markdown, suitable for an e-mail."""
    parts = (each.markdown() for each in blocks)
    return "\n\n".join([f"# {escape_markdown(title)}", *filter(None, parts)]) + "\n"


def render_fragment(*blocks: ReportBlock) -> str:
    """Return blocks as an HTML fragment for a notebook."""
    return "\n".join(each.html() for each in blocks)


def render_page(title: str, blocks: Iterable[ReportBlock]) -> str:
    """Return a report as an HTML page for light and dark screens, phones and print."""
    head = make_markup_element(
        "head",
        make_markup_element("meta", charset="utf-8"),
        make_markup_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        make_markup_element("meta", http_equiv="Content-Security-Policy", content=_CONTENT_SECURITY_POLICY),
        make_markup_element("title", _shorten_line(title)),
        make_markup_element("style", Markup(STYLE)),
    )
    main = make_markup_element(
        "main", make_markup_element("h1", _shorten_line(title)), "\n", Markup(render_fragment(*blocks))
    )
    return f"<!doctype html>\n{make_markup_element('html', head, make_markup_element('body', main), lang='en')}\n"


def escape_markdown(text: str) -> str:
    """Return a single line of bounded length that Markdown renders literally."""
    found = _shorten_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("[", "\\[")
    return found.replace("<", "&lt;").replace("`", "'")


def _shorten_line(text: str) -> str:
    return quote_value(text, _MAX_CELL_CHARS)
