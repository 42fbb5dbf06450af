"""Add the manual pages to a wheel, in share/man/man1, where `man` finds them next to the program's bin folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface[Any]):
    """A build hook that Hatchling calls for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and register them. An editable install has no pages."""
        if version == "editable":
            return
        sys.path[:0] = [str(Path(self.root, folder)) for folder in ("", "sim", "bridge")]
        from docs.scripts import man

        for path in man.write(Path(self.root, "build", "man")):
            build_data["shared_data"][str(path)] = f"share/man/man1/{path.name}"
