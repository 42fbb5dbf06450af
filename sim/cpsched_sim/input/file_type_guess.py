"""Guess the type of a file from its kind and its first bytes, for error messages."""

from __future__ import annotations

import gzip
import re
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path

from cpsched_sim.errors import InputError, MissingFile

HEAD_BYTES = 1 << 16
"""Number of bytes to examine."""
GZIP = b"\x1f\x8b"
_SPECIAL_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MAGIC_BYTES = (
    (b"\xff\xfe\0\0", "UTF-32 text; save it as UTF-8"),
    (b"\0\0\xfe\xff", "UTF-32 text; save it as UTF-8"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
    (b"BZh", "a bzip2 archive; decompress it, or compress it with gzip"),
    (b"\xfd7zXZ\0", "an xz archive; decompress it, or compress it with gzip"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive; decompress it, or compress it with gzip"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"%PDF", "a PDF document"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"PAR1", "a Parquet table"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "an image"),
    (b"\x7fELF", "a program"),
)
_LINE_END = re.compile(r"\r\n|\r|\n")
"""Line endings recognised by the readers."""
_BINARY_BYTES = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1b\x1a"))
_BINARY_CHARACTER = re.compile(f"[{re.escape(_BINARY_BYTES.decode())}]")


@dataclass(frozen=True, slots=True)
class FileTypeGuess:
    """A guess at a file's type. `seems` describes the file in a few words.

    `lines` contains the first non-blank lines of a text file. If part of the file is binary, those lines are omitted.
    """

    seems: str
    lines: tuple[str, ...] = ()


def describe_special_file(path: Path) -> str:
    """Return "a directory", "a named pipe" or similar, or "" for a file.

    Raise `InputError` if it is missing.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise MissingFile(f"{path}: {error.strerror}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return next((kind for is_kind, kind in _SPECIAL_KINDS if is_kind(mode)), "")


def sniff_file(path: Path) -> FileTypeGuess:
    """Guess the type of a file. Raise `InputError` if it cannot be read."""
    if kind := describe_special_file(path):
        return FileTypeGuess(kind)
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    packed = head.startswith(GZIP)
    if packed:
        try:
            head = _read_unpacked_head(path)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path}: damaged gzip: {error}") from error
    kind, lines = _guess_content(head)
    return FileTypeGuess(f"gzip, containing {kind}" if packed else kind, lines)


def _read_unpacked_head(path: Path) -> bytes:
    """Return the first bytes of a gzip file, even if the file is truncated."""
    head = b""
    with gzip.open(path, "rb") as file:
        try:
            while len(head) < HEAD_BYTES and (more := file.read1(HEAD_BYTES)):
                head += more
        except (EOFError, OSError, zlib.error):
            if not head:
                raise
    return head[:HEAD_BYTES]


def _guess_content(head: bytes) -> tuple[str, tuple[str, ...]]:
    if not head.strip():
        return "empty", ()
    if found := next((kind for magic, kind in _MAGIC_BYTES if head.startswith(magic)), ""):
        return found, ()
    text = head.decode("utf-8-sig", "replace")
    lines = tuple(line for line in _LINE_END.split(text) if line.strip())
    if len(head.translate(None, _BINARY_BYTES)) < 0.98 * len(head):
        kind = "UTF-16 text, or binary data" if head.count(0) > len(head) // 4 else "binary data"
        return kind, tuple(line for line in lines if not _BINARY_CHARACTER.search(line))
    return (_guess_text_kind(lines[0].strip()) if lines else "empty"), lines


def _guess_text_kind(first: str) -> str:
    if first.startswith(("{", "[")):
        return "JSON"
    if first.startswith("<"):
        return "HTML or XML"
    for separator, name in ((",", "commas"), (";", "semicolons"), ("\t", "tabs")):
        if first.count(separator) >= 2:
            return f"a table with {name} (CSV)"
    return "text"
