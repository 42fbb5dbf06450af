"""Control access to the status page.

A web site can make its own host name resolve to the reader's machine. Its scripts can then read this page under that
name (DNS rebinding). The page therefore accepts a request only if its host is an IP address, localhost, or a configured
name. No web site can claim an IP address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

from cpsched.errors import InvalidValue
from cpsched_bridge.proxy_users import ProxyUserIdentifier, ProxyUserRejected, parse_trusted_network
from cpsched_bridge.settings import StatusPageSettings
from cpsched_bridge.web.http_responses import make_error_response

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*))(?::(?P<port>[0-9]{1,5}))?"
)
"""Pattern for an address or a name with an optional port, but no user, path, trailing dot, zone or space."""
_HOST_NOT_ALLOWED = (
    "page.hosts: this host name is not allowed; use localhost or the host's IP address, or add the name to page.hosts\n"
)
Page = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class PageAccessControl:
    """The page's access rules.

    Requests run one at a time because they share the interpreter with the main loop.
    """

    hosts: Sequence[str] = ()
    """Allowed host names in addition to IP addresses and localhost."""
    readers: ProxyUserIdentifier = field(default_factory=ProxyUserIdentifier)
    at_a_time: Lock = field(default_factory=Lock)

    @classmethod
    def from_settings(cls, page: StatusPageSettings) -> PageAccessControl:
        """Return the access rules from the settings."""
        readers = ProxyUserIdentifier(
            page.user_header, tuple(map(parse_trusted_network, page.trusted_proxies)), frozenset(page.operators)
        )
        return cls(page.hosts, readers)

    def restrict_to_readers(self, page: Page) -> Page:
        """Return `page` restricted to permitted readers.

        `request.state.reader` is None if the reader sees all jobs.
        """

        def handle_if_permitted(request: Request) -> Response:
            if not is_allowed_host(request.headers.get("host", ""), self.hosts):
                return make_error_response(request, _HOST_NOT_ALLOWED, 421)
            peer = request.client.host if request.client is not None else None
            try:
                request.state.reader = self.readers.identify_reader(peer, request.headers.getlist(self.readers.header))
                with self.at_a_time:
                    answer = page(request)
            except ProxyUserRejected as refused:
                answer = make_error_response(request, f"{refused}\n", 403)
            except InvalidValue as error:
                answer = make_error_response(request, f"{error}\n", 400)
            if self.readers.are_readers_restricted:
                answer.headers["Cache-Control"] = "private, no-cache"
                answer.headers.add_vary_header(self.readers.header)
            return answer

        return handle_if_permitted


def is_allowed_host(host: str, names: Collection[str] = ()) -> bool:
    """Return whether `host` is an IP address, localhost, or one of `names`.

    The host may include a port. Case does not matter.
    """
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return False
    if found["v6"] is not None:
        return _is_ip_address(IPv6Address, found["v6"])
    name = found["name"].lower()
    return name == "localhost" or name in {each.lower() for each in names} or _is_ip_address(IPv4Address, name)


def _is_ip_address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True
