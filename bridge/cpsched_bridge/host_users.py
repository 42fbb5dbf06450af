"""Look up users of this host. A cluster's users need not exist on it."""

from __future__ import annotations

import pwd


def find_user_name(user_id: int) -> str:
    """Return a user's name on this host, or the user id as text."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
