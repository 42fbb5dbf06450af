"""Bounds on input files, checked before these can consume memory or time.

Times and amounts are bounded so that sums over any trace stay within the bounds of the model
(`cpsched.model.value_bounds`).
"""

from cpsched.model.value_bounds import AMOUNT_BOUND

MAX_LINE_CHARS = 1 << 20
"""Maximum number of characters in a line of a trace."""
MAX_FIELD_CHARS = 1 << 16
"""Maximum number of characters in a field of a trace."""
MAX_LINES = 100_000_000
"""Maximum number of lines in a trace."""
MAX_LINES_WITHOUT_JOB = 1_000_000
"""Maximum number of lines without a job: blank lines, comments and, if reading is lenient, invalid lines."""
MAX_HEADER_LINES = 10_000
"""Maximum number of header lines to store from a trace. Further lines are skipped."""
MAX_HEADER_CHARS = 1 << 22
"""Maximum total number of characters of the stored header lines."""
MAX_UNPACKED_BYTES = 1 << 26
"""Size in bytes to which any gzip file may decompress."""
MAX_UNPACKED_RATIO = 50
"""Maximum ratio of decompressed to compressed size above `MAX_UNPACKED_BYTES`. Real traces reach 13; gzip allows
1,032.
"""
MAX_JOBS = 20_000_000
"""Maximum number of jobs in a trace."""

MAX_ID = (1 << 62) - 1
"""Maximum absolute value of a job number."""
MAX_TIME_S = 1 << 40
"""Maximum time in seconds: 34,865 years."""
MAX_UNITS = (1 << 31) - 1
"""Maximum number of units that a job requests, or of processors if it requests processors."""
MAX_AMOUNT = AMOUNT_BOUND - 1
"""Maximum amount of a resource in a unit or on a node. 2^40 MiB is one exbibyte."""

MAX_YAML_BYTES = 1 << 17
"""Maximum size of a system file or settings file, in bytes."""
MAX_YAML_DEPTH = 30
"""Maximum nesting depth of lists and mappings."""
MAX_YAML_VALUES = 10_000
"""Maximum number of values in a system file or settings file. Each use of an alias counts."""
MAX_YAML_INTEGER = (1 << 63) - 1
"""Maximum absolute value of a whole number in these files."""

MAX_JSON_BYTES = 1 << 26
"""Maximum size in bytes of a JSON file that a setting refers to."""

MAX_NODES = 250_000
"""Maximum number of nodes in a system."""
MAX_RESOURCES = 64
"""Maximum number of resources in a system."""
MAX_NODE_SETS = 1_000
"""Maximum number of node types and partitions in a system."""
