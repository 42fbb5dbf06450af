"""A bridge for hours beside an accelerated site: does anything grow? See `python -m tests.soak --help`."""
