"""Run a bridge for hours on an accelerated site, to detect growth. See `python -m tests.soak --help`."""
