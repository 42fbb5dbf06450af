"""What a reader asked for, as the address says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlencode

HOURS = (1, 6, 24)
"""How far ahead the chart may go."""
_MOST_ASKED = 100


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A choice of nodes and jobs; what makes no sense counts as not asked."""

    ahead: int = 6
    first: int | None = None
    last: int | None = None
    page: int = 1
    q: str = ""
    """Words to find."""
    state: str = ""
    kind: str = ""
    """Of the reason for which jobs wait."""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    node: str = ""
    sort: str = ""
    """The name of an order; with a minus before it, the other way round."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> PageQuery:
        """From the address."""
        ahead = _number(query.get("ahead"))
        words = {each.name: _words(query.get(each.name, "")) for each in fields(cls) if each.type == "str"}
        return cls(
            ahead=ahead if ahead in HOURS else 6,
            first=_number(query.get("first")),
            last=_number(query.get("last")),
            page=max(1, _number(query.get("page")) or 1),
            **words,
        )

    @property
    def zoomed(self) -> bool:
        """Whether only some of the nodes are drawn."""
        return self.first is not None

    @property
    def filtered(self) -> bool:
        """Whether some jobs or nodes may be left out."""
        return any((self.q, self.kind, self.user, self.account, self.partition, self.qos, self.node))

    def address(self, **changes: object) -> str:
        """The address of the same page with changes; another choice begins at its first page."""
        values = asdict(self) | {"page": 1} | changes
        plain = asdict(PageQuery())
        return "?" + urlencode({name: value for name, value in values.items() if value != plain[name]})

    def other(self, **choices: object) -> str:
        """The query of another page with these choices."""
        return "?" + urlencode(choices)


def _words(text: str) -> str:
    return "".join(filter(str.isprintable, text[:_MOST_ASKED])).strip()


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.removeprefix("-").isdecimal() and text.isascii() else None
