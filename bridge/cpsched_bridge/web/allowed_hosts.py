"""Check the `Host` header of a request.

Any web site can point its own name at the reader's machine, and its scripts can then read this page under that name
(DNS rebinding). So the page answers only to addresses, which no web site can claim, to localhost, and to configured
names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[0-9A-Za-z_-]+(?:\.[0-9A-Za-z_-]+)*))(?::(?P<port>[0-9]{1,5}))?"
)
"""An address or a name, with or without a port. No user, path, trailing dot, zone, or spaces."""


def is_allowed_host(host: str, names: Collection[str] = ()) -> bool:
    """Whether `host` is an address, localhost, or one of `names` in any case, with or without a port."""
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
