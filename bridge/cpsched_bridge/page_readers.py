"""Who reads the page, where a reverse proxy says so in a header (`page.user_header`), and whether to believe it.

Whoever can connect can write any header. So it is believed of trusted peers alone, by the address of the connection
itself; what `X-Forwarded-For` and its like say counts for nothing. A request that does not say clearly who reads is
refused: no header, several, an empty one, or what is no name of a user.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}\$?")
"""Names as Unix has them. No comma: two headers that a proxy made into one are no name."""
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_TAKEN = frozenset(
    ("accept", "accept-encoding", "accept-language", "authorization", "cache-control", "connection", "content-length",
     "content-type", "cookie", "forwarded", "host", "if-none-match", "origin", "referer", "te", "transfer-encoding",
     "upgrade", "user-agent", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
)  # fmt: skip
"""Headers that clients send, or that say something else."""
Network = IPv4Network | IPv6Network


class ReaderRejected(Exception):
    """A request that does not show who reads; the message says why."""


def checked_header(name: str) -> str:
    """A header's name, or none. Raises `ValueError` for one that could not say who reads."""
    if name and _HEADER.fullmatch(name) is None:
        raise ValueError("must be the name of a header: letters, digits and -, such as X-Remote-User")
    if name.lower() in _TAKEN:
        raise ValueError("must be a header that clients have no use for, such as X-Remote-User")
    return name


def network_of(text: str) -> Network:
    """An address, or a network. Raises `ValueError` for what is none, and for all addresses there are."""
    try:
        found = ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be addresses or networks, such as 10.0.0.5 or 10.1.0.0/24: {error}") from error
    if found.prefixlen == 0:
        raise ValueError(f"{text} would trust everybody")
    return found


def checked_user(text: str) -> str:
    """The name of a user. Raises `ValueError` for what is none."""
    if _USER.fullmatch(text) is None:
        raise ValueError("must be a user's name")
    return text


@dataclass(frozen=True, slots=True)
class PageReaders:
    """Tells of each request who reads. Without a `header` everybody reads everything."""

    header: str = ""
    trusted: Sequence[Network] = ()
    operators: Collection[str] = ()
    """Those who see everybody's jobs."""

    @property
    def told_apart(self) -> bool:
        """Whether a reader sees his own jobs alone."""
        return bool(self.header)

    def of(self, peer: str | None, said: Sequence[str]) -> str | None:
        """Who reads; None: somebody who sees everything. Raises `ReaderRejected`.

        `peer` is the address that the connection comes from, `said` the values of all headers of that name.
        """
        if not self.told_apart:
            return None
        if not self._trusts(peer):
            raise ReaderRejected(
                "this page is read through a proxy of the site, which says who reads (page.trusted_proxies)"
            )
        if len(said) != 1 or _USER.fullmatch(said[0]) is None:
            raise ReaderRejected("the proxy does not say who reads (page.user_header)")
        return None if said[0] in self.operators else said[0]

    def _trusts(self, peer: str | None) -> bool:
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.trusted)
