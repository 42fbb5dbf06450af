"""Mutations of a file: a few small changes, drawn by Hypothesis so that a failing case shrinks.

A change is (what, where, with): the name of a mutation, a place as a share of the file, and a hostile word.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from hypothesis import strategies as st

NUMBERS = (
    b"0", b"-1", b"-0", b"+1", b"1e3", b"1.5", b"nan", b"inf", b"-inf", b"1e400", b"0x10", b"1_000", b"007",
    b"2147483648", b"4611686018427387904", b"4611686018427387903", b"9223372036854775807", b"9223372036854775808",
    b"18446744073709551616", b"-9223372036854775809", b"1000000000", b"999999", b"9" * 40, b"9" * 5000,
    "\u0661\u0662".encode(), b"1.2.3", b"1:60:30", b"0b_", b"0x_", b"1e1000000000", b"0.1e-999999",
)  # fmt: skip
WORDS = (
    b"", b" ", b"\t", b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"\x0b", b"\x1b[31m", b"\x7f", b"\x85", b"\xa0", b"\xff",
    b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", "\u2028".encode(), "\u202e".encode(), "\ufeff".encode(),
    b"|", b",", b";", b":", b"#", b"=", b"'", b'"', b'"""', b"\\", b"\\N", b"/", b"../../etc/passwd", b"/etc/passwd",
    b"/dev/zero", b"{", b"}", b"[", b"]", b"[" * 2000, b"{a: " * 500, b"- " * 1500, b"-", b"?", b"!", b"!!int x",
    b"!!python/object/apply:os.system [id]", b"!!binary x", b"!!timestamp y", b"&a", b"*a", b"<<: *a", b"&a [*a, *a]",
    b"%YAML 9.9\n---\n", b"%YAML 1." + b"9" * 5000 + b"\n---\n", b"---\n", b"...\n", b"2001-13-45", b"2001-01-01", b"~",
    b"null", b"true", b"yes", b'"\\ud800"', b'"\\0"', b'"\\UFFFFFFFF"', b"|+\n", b">-\n", b"@", b"`", b"[/x]", b"[red]",
    b"MaxProcs", b"; MaxProcs: 99999999999999999999\n", b"; MaxNodes: 0\n", b"# system: /etc/passwd\n",
    b"# system: pool\n", b"# system: ../x\n", b"system", b"mem=1.2.3G", b"mem=9" + b"9" * 400 + b"P", b"mem=1e5G",
    b"node=0", b"cpu=-4", b"gres/gpu=x", b"Unknown", b"None", b"UNLIMITED", b"0001-01-01T00:00:00",
    b"9999-12-31T23:59:59", b"2026-01-01T00:00:00+99:99", b"99999999-00:00:00", b"x" * 70_000, b'"' + b"y" * 140_000,
    b"count: 1000000000", b"each: {}", b"name: [1]", b"units: ~",
)  # fmt: skip
HOSTILE = NUMBERS + WORDS
_EDGES = b" \t\r\n|,;:=[]{}\"'"


def _fields(content: bytes) -> list[tuple[int, int]]:
    """Return (begin, end) of the words between separators."""
    edges = [-1, *(at for at, byte in enumerate(content) if byte in _EDGES), len(content)]
    return [(a + 1, b) for a, b in pairwise(edges) if b > a + 1] or [(0, len(content))]


def _lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True) or [b""]


def _replace_field(content: bytes, at: float, word: bytes) -> bytes:
    fields = _fields(content)
    begin, end = fields[int(at * len(fields))]
    return content[:begin] + word + content[end:]


def _insert(content: bytes, at: float, word: bytes) -> bytes:
    cut = int(at * (len(content) + 1))
    return content[:cut] + word + content[cut:]


def _flip(content: bytes, at: float, word: bytes) -> bytes:
    cut = int(at * len(content))
    return content[:cut] + bytes(byte ^ (1 << len(word) % 8) for byte in content[cut : cut + 1]) + content[cut + 1 :]


def _cut_out(content: bytes, at: float, word: bytes) -> bytes:
    begin = int(at * len(content))
    return content[:begin] + content[begin + 1 + len(word) % 60 :]


def _drop_line(content: bytes, at: float, word: bytes) -> bytes:
    lines = _lines(content)
    del lines[int(at * len(lines))]
    return b"".join(lines)


def _repeat_line(content: bytes, at: float, word: bytes) -> bytes:
    lines = _lines(content)
    which = int(at * len(lines))
    return b"".join(lines[: which + 1] + [lines[which]] * (1 + len(word) % 5) + lines[which + 1 :])


def _swap_lines(content: bytes, at: float, word: bytes) -> bytes:
    lines = _lines(content)
    a, b = int(at * len(lines)), (int(at * len(lines)) + 1 + len(word)) % len(lines)
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def _recode(content: bytes, at: float, word: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    encodings = ("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig", "utf-7", "cp037")
    return text.encode(encodings[int(at * len(encodings))], "replace")


MUTATIONS: Mapping[str, Callable[[bytes, float, bytes], bytes]] = {
    "replace a field": _replace_field,
    "insert": _insert,
    "flip a bit": _flip,
    "cut out": _cut_out,
    "truncate": lambda content, at, word: content[: int(at * len(content))],
    "drop a line": _drop_line,
    "repeat a line": _repeat_line,
    "swap lines": _swap_lines,
    "recode": _recode,
    "windows line ends": lambda content, at, word: content.replace(b"\n", b"\r\n"),
    "other separator": lambda content, at, word: content.replace(b"|", word[:1] or b",").replace(b",", b"\t"),
    "gzip": lambda content, at, word: gzip.compress(content, mtime=0),
}

Change = tuple[str, float, bytes]


def mutated(content: bytes, changes: Sequence[Change]) -> bytes:
    """Apply each change in turn to `content`."""
    for what, at, word in changes:
        content = MUTATIONS[what](content, at, word)
    return content


_PLACES = st.floats(0, 1, exclude_max=True, width=32)
_OFTEN = st.tuples(st.just("replace a field"), _PLACES, st.sampled_from(HOSTILE))
_ANY = st.tuples(st.sampled_from(sorted(MUTATIONS)), _PLACES, st.sampled_from(HOSTILE))
CHANGES = st.lists(_OFTEN | _ANY, min_size=1, max_size=3)
"""A few changes to one file: half of them a hostile word for a field."""
