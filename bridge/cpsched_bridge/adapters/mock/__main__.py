"""Runs a simulated site in a process of its own; CONFIG is the bridge's own settings file.

python -m cpsched_bridge.adapters.mock CONFIG
"""

from __future__ import annotations

import sys
from pathlib import Path

from cpsched_bridge.adapters.mock import Options, local_backend
from cpsched_bridge.adapters.mock.remote import serve
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.settings import load


def main() -> int:
    """Serve the site that CONFIG describes at its `socket`."""
    if len(sys.argv) != 2:
        print("usage: python -m cpsched_bridge.adapters.mock CONFIG", file=sys.stderr)
        return 2
    try:
        options = load(Path(sys.argv[1])).adapter_options(Options, sys.argv[1])
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    if options.socket is None:
        print(f"{sys.argv[1]}: options.socket: must be given", file=sys.stderr)
        return 2
    serve(local_backend(options), options.socket)
    return 0


if __name__ == "__main__":
    sys.exit(main())
