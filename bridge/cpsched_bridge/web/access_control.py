"""Access to the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

from cpsched.errors import InvalidValue
from cpsched_bridge.proxy_users import ProxyUserIdentifier, ProxyUserRejected, parse_network
from cpsched_bridge.settings import StatusPageSettings
from cpsched_bridge.web.allowed_hosts import is_allowed_host
from cpsched_bridge.web.http_responses import error_response

_MISDIRECTED = (
    "page.hosts: this host name is not allowed; use an address of this machine or localhost, or add the name there\n"
)
Page = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class PageAccessControl:
    """Access rules of the page. Requests are answered one at a time: they share the interpreter with the loop."""

    hosts: Sequence[str] = ()
    """Allowed host names, in addition to addresses of this machine and localhost."""
    readers: ProxyUserIdentifier = field(default_factory=ProxyUserIdentifier)
    at_a_time: Lock = field(default_factory=Lock)

    @classmethod
    def from_settings(cls, page: StatusPageSettings) -> PageAccessControl:
        """Return the configured rules."""
        readers = ProxyUserIdentifier(
            page.user_header, tuple(map(parse_network, page.trusted_proxies)), frozenset(page.operators)
        )
        return cls(page.hosts, readers)

    def guard(self, page: Page) -> Page:
        """Restrict `page` to permitted readers; `request.state.reader` is None if the reader sees all jobs."""

        def guarded(request: Request) -> Response:
            if not is_allowed_host(request.headers.get("host", ""), self.hosts):
                return error_response(request, _MISDIRECTED, 421)
            peer = request.client.host if request.client is not None else None
            try:
                request.state.reader = self.readers.identify_reader(peer, request.headers.getlist(self.readers.header))
                with self.at_a_time:
                    answer = page(request)
            except ProxyUserRejected as refused:
                answer = error_response(request, f"{refused}\n", 403)
            except InvalidValue as error:
                answer = error_response(request, f"{error}\n", 400)
            if self.readers.are_restricted:
                answer.headers["Cache-Control"] = "private, no-cache"
                answer.headers.add_vary_header(self.readers.header)
            return answer

        return guarded
