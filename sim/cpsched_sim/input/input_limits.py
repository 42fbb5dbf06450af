"""How large a file and what is in it may be. What is larger is refused by name, before it costs memory or time.

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
"""Lines of a trace that hold no job: blank ones, comments, and bad ones where reading is lenient."""
MAX_HEADER_LINES = 10_000
"""Lines of a trace's header that are kept; those beyond are passed over."""
MAX_HEADER_CHARS = 1 << 22
"""Characters of these lines, in all."""
MAX_UNPACKED_BYTES = 1 << 26
"""What a gzip file may unpack to, however small it is."""
MAX_UNPACKED_RATIO = 50
"""Beyond that, so many times its own size. Real traces come to 13 times theirs at most, gzip itself allows 1,032."""
MAX_JOBS = 20_000_000
"""Jobs of a trace."""

MAX_ID = (1 << 62) - 1
"""Job number, either sign."""
MAX_TIME_S = 1 << 40
"""Any time, in seconds: 34,865 years."""
MAX_UNITS = (1 << 31) - 1
"""Units of a job; processors where a job asks for processors."""
MAX_AMOUNT = MOST_AMOUNT - 1
"""One amount of a unit or of a node: 2^40 MiB are an exbibyte."""

MAX_YAML_BYTES = 1 << 17
"""Size of a system file or a settings file."""
MAX_YAML_DEPTH = 30
"""Lists and mappings within each other."""
MAX_YAML_VALUES = 10_000
"""Values of a system file or a settings file, each counted as often as aliases repeat it."""
MAX_YAML_INTEGER = (1 << 63) - 1
"""A whole number in such a file, either sign."""

MAX_JSON_BYTES = 1 << 26
"""Size of a JSON file that a setting names."""

MAX_NODES = 250_000
"""Nodes of a system."""
MAX_RESOURCES = 64
"""Resources of a system."""
MAX_NODE_SETS = 1_000
"""Node types and partitions of a system."""
