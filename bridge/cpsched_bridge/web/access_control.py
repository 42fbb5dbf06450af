"""Whom the page is for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from starlette.requests import Request
from starlette.responses import Response

from cpsched.errors import InvalidValue
from cpsched_bridge.page_readers import PageReaders, ReaderRejected, network_of
from cpsched_bridge.settings import PageSettings
from cpsched_bridge.web.allowed_hosts import is_allowed_host
from cpsched_bridge.web.http_responses import refusal

_MISDIRECTED = (
    "the page is for this machine's addresses and localhost; other names belong into the setting page.hosts\n"
)
Page = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Whom the page is for. One request is answered at a time: the loop shares the interpreter with one of them."""

    hosts: Sequence[str] = ()
    """Names that may be asked for, beside addresses of this machine and localhost."""
    readers: PageReaders = field(default_factory=PageReaders)
    at_a_time: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, page: PageSettings) -> AccessControl:
        """The door that the settings ask for."""
        readers = PageReaders(page.user_header, tuple(map(network_of, page.trusted_proxies)), frozenset(page.operators))
        return cls(page.hosts, readers)

    def guard(self, page: Page) -> Page:
        """`page`, for those whom it is for; `request.state.reader` says who reads, None: somebody who sees all."""

        def guarded(request: Request) -> Response:
            if not is_allowed_host(request.headers.get("host", ""), self.hosts):
                return refusal(request, _MISDIRECTED, 421)
            peer = request.client.host if request.client is not None else None
            try:
                request.state.reader = self.readers.of(peer, request.headers.getlist(self.readers.header))
                with self.at_a_time:
                    answer = page(request)
            except ReaderRejected as refused:
                answer = refusal(request, f"{refused}\n", 403)
            except InvalidValue as error:
                answer = refusal(request, f"{error}\n", 400)
            if self.readers.told_apart:
                answer.headers["Cache-Control"] = "private, no-cache"
                answer.headers.add_vary_header(self.readers.header)
            return answer

        return guarded
