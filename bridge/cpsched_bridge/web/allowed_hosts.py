"""Whether a request is meant for this page: what a `Host` header may say.

Any web site can have its own name lead to the reader's machine, and its scripts then ask for this page by that name
(DNS rebinding); the browser takes the answer for the site's. So the page answers to addresses, which no web site can
take for its own, to localhost, and to names that an administrator listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*))(?::(?P<port>[0-9]{1,5}))?"
)
"""An address or a name, then a port or none. No user, no path, no dot at the end, no zone, no spaces."""


def is_allowed_host(host: str, names: Collection[str] = ()) -> bool:
    """Whether `host` is an address, localhost, or one of `names`, with or without a port; names in any case."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return False
    if found["v6"] is not None:
        return _is_address(IPv6Address, found["v6"])
    name = found["name"].lower()
    return name == "localhost" or name in {each.lower() for each in names} or _is_address(IPv4Address, name)


def _is_address(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True
