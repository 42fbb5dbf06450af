"""Identify users: by their ids on this host, and the page's reader by a reverse proxy's header (`page.user_header`).

A cluster's users need not exist on this host.

Any client can send any header, so it is accepted only from trusted peers, identified by their addresses.
`X-Forwarded-For` and similar headers are ignored. A request is rejected if the header is missing, repeated, empty or
not a user name.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,254}\$?")
"""Pattern for Unix user names. A comma is invalid because a proxy joins repeated headers with a comma."""
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_RESERVED_HEADERS = frozenset(
    ("accept", "accept-encoding", "accept-language", "authorization", "cache-control", "connection", "content-length",
     "content-type", "cookie", "forwarded", "host", "if-none-match", "origin", "referer", "te", "transfer-encoding",
     "upgrade", "user-agent", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
)  # fmt: skip
"""Headers that clients send or that have another meaning."""
Network = IPv4Network | IPv6Network


def find_user_name(user_id: int) -> str:
    """Return a user's name on this host, or the user id as text."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


class ProxyUserRejected(Exception):
    """An error for a request that does not identify its reader, with the reason."""


def validate_user_header(name: str) -> str:
    """Return a header name, or "". Raise `ValueError` if it cannot identify a user."""
    if name and _HEADER.fullmatch(name) is None:
        raise ValueError("must consist of letters, digits and hyphens, such as X-Remote-User")
    if name.lower() in _RESERVED_HEADERS:
        raise ValueError("must be a header that clients do not send, such as X-Remote-User")
    return name


def parse_trusted_network(text: str) -> Network:
    """Return the address or network in `text`.

    Raise `ValueError` if it is invalid or includes all addresses.
    """
    try:
        found = ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be addresses or networks, such as 10.0.0.5 or 10.1.0.0/24: {error}") from error
    if found.prefixlen == 0:
        raise ValueError(f"{text} would trust every client; list the proxies")
    return found


def validate_user_name(text: str) -> str:
    """Return the user name in `text`. Raise `ValueError` if it is invalid."""
    if _USER.fullmatch(text) is None:
        raise ValueError("must be a user name")
    return text


@dataclass(frozen=True, slots=True)
class ProxyUserIdentifier:
    """The rules that identify readers. Without a `header`, every reader sees all jobs."""

    header: str = ""
    trusted: Sequence[Network] = ()
    operators: Collection[str] = ()
    """Users who see all jobs."""

    @property
    def are_readers_restricted(self) -> bool:
        """Whether readers see only their own jobs."""
        return bool(self.header)

    def identify_reader(self, peer: str | None, header_values: Sequence[str]) -> str | None:
        """Return the reader's name, or None for a reader who sees all jobs.

        Raise `ProxyUserRejected` for an unidentified reader. `peer` is the connection's address, and `header_values`
        are the values of all headers named `header`.
        """
        if not self.are_readers_restricted:
            return None
        if not self._is_trusted_peer(peer):
            raise ProxyUserRejected(
                "page.trusted_proxies: requests must come through a trusted proxy that names the user"
            )
        if len(header_values) != 1 or _USER.fullmatch(header_values[0]) is None:
            raise ProxyUserRejected("page.user_header: the proxy must name the user in this header")
        return None if header_values[0] in self.operators else header_values[0]

    def _is_trusted_peer(self, peer: str | None) -> bool:
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.trusted)
