"""Bounds on the size and content of input files, checked before memory or time is spent.

Times and amounts are bounded so that sums over any trace stay within the bounds of the model
(`cpsched.model.value_bounds`).
"""

from cpsched.model.value_bounds import MOST_AMOUNT

MAX_LINE_CHARS = 1 << 20
"""Characters of a line in a trace."""
MAX_FIELD_CHARS = 1 << 16
"""Characters of a field in a trace."""
MAX_LINES = 100_000_000
"""Lines of a trace."""
MAX_LINES_ASIDE = 1_000_000
"""Lines without a job in a trace: blank lines, comments, and broken lines if reading is lenient."""
MAX_HEADER_LINES = 10_000
"""Lines stored of a trace's header; further lines are skipped."""
MAX_HEADER_CHARS = 1 << 22
"""Maximum total characters of the stored header lines."""
MAX_UNPACKED_BYTES = 1 << 26
"""Unpacked size that is allowed for any gzip file."""
MAX_UNPACKED_RATIO = 50
"""Maximum ratio of unpacked to packed size beyond that. Real traces reach at most 13; gzip allows 1,032."""
MAX_JOBS = 20_000_000
"""Jobs of a trace."""

MAX_ID = (1 << 62) - 1
"""Job number, absolute value."""
MAX_TIME_S = 1 << 40
"""Any time, in seconds: 34,865 years."""
MAX_UNITS = (1 << 31) - 1
"""Units of a job, or processors if it requests processors."""
MAX_AMOUNT = MOST_AMOUNT - 1
"""One amount of a unit or of a node; 2^40 MiB are an exbibyte."""

MAX_YAML_BYTES = 1 << 17
"""Size of a system file or a settings file."""
MAX_YAML_DEPTH = 30
"""Nesting depth of lists and mappings."""
MAX_YAML_VALUES = 10_000
"""Values of a system file or a settings file, counted once per use of an alias."""
MAX_YAML_INTEGER = (1 << 63) - 1
"""A whole number in such a file, absolute value."""

MAX_JSON_BYTES = 1 << 26
"""Size of a JSON file given by a setting."""

MAX_NODES = 250_000
"""Nodes of a system."""
MAX_RESOURCES = 64
"""Resources of a system."""
MAX_NODE_SETS = 1_000
"""Node types and partitions of a system."""
