"""Parse a page's query from its address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlencode

CHART_RANGES_H = (1, 6, 24)
"""Selectable ranges of the chart, in hours."""
_MAX_QUERY_TEXT_CHARS = 100


@dataclass(frozen=True, slots=True)
class StatusPageQuery:
    """The selection of nodes and jobs for a page. Invalid parameters are ignored."""

    ahead: int = 6
    first: int | None = None
    last: int | None = None
    page: int = 1
    q: str = ""
    """Text to search for."""
    state: str = ""
    kind: str = ""
    """Kind of pending reason."""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    node: str = ""
    sort: str = ""
    """Name of a sort order, reversed by a leading minus."""

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> StatusPageQuery:
        """Return the query from the parameters of an address."""
        ahead = _parse_number(query.get("ahead"))
        words = {each.name: _clean_text(query.get(each.name, "")) for each in fields(cls) if each.type == "str"}
        return cls(
            ahead=ahead if ahead in CHART_RANGES_H else 6,
            first=_parse_number(query.get("first")),
            last=_parse_number(query.get("last")),
            page=max(1, _parse_number(query.get("page")) or 1),
            **words,
        )

    @property
    def is_zoomed(self) -> bool:
        """Whether the chart shows only some of the nodes."""
        return self.first is not None

    @property
    def is_filtered(self) -> bool:
        """Whether the query may exclude jobs or nodes."""
        return any((self.q, self.kind, self.user, self.account, self.partition, self.qos, self.node))

    def make_address(self, **changes: object) -> str:
        """Return the page's address with changes applied, at its first page."""
        values = asdict(self) | {"page": 1} | changes
        plain = asdict(StatusPageQuery())
        return "?" + urlencode({name: value for name, value in values.items() if value != plain[name]})

    def make_other_page_query(self, **choices: object) -> str:
        """Return the query of another page with these selections."""
        return "?" + urlencode(choices)


def _clean_text(text: str) -> str:
    return "".join(filter(str.isprintable, text[:_MAX_QUERY_TEXT_CHARS])).strip()


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.removeprefix("-").isdecimal() and text.isascii() else None
