"""Read text files line by line: UTF-8, plain or gzipped.

A byte order mark is skipped. Any line ending is accepted. A folder may contain one file per day, named by date.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from typing_extensions import override

from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.input.file_type_guess import GZIP, describe_special_file
from cpsched_sim.input.input_limits import MAX_LINE_CHARS, MAX_LINES, MAX_UNPACKED_BYTES, MAX_UNPACKED_RATIO

_DATED_NAME = re.compile(r"\d{8}(?:\.gz)?$", re.ASCII)
_BLOCK_BYTES = 1 << 18
"""Number of bytes to read at a time. Larger blocks are slower because they exceed the processor's cache."""


class _SizeLimitedGzipFile(gzip.GzipFile):
    """A gzip file of limited size, as protection against decompression bombs.

    Its unpacked size is at most `MAX_UNPACKED_BYTES` or, if larger, `most_ratio` times its compressed size.
    """

    def __init__(self, path: Path, most_ratio: int) -> None:
        super().__init__(path, "rb")
        self._max_bytes = max(MAX_UNPACKED_BYTES, most_ratio * path.stat().st_size)
        self._unpacked_bytes = 0

    @override
    def read(self, size: int | None = -1) -> bytes:
        return self._check_unpacked_size(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        """Read some bytes. Raise `OSError` if the limit is exceeded."""
        return self._check_unpacked_size(super().read1(size))

    @override
    def readline(self, size: int | None = -1) -> bytes:
        return self._check_unpacked_size(super().readline(size))

    def _check_unpacked_size(self, data: bytes) -> bytes:
        self._unpacked_bytes += len(data)
        if self._unpacked_bytes > self._max_bytes:
            raise OSError(f"decompresses to more than {self._max_bytes:,} bytes, the limit for a file of this size")
        return data


def _open_binary(path: Path, most_ratio: int) -> BinaryIO:
    """Open a file, and decompress gzip. Raise `InputError`."""
    if kind := describe_special_file(path):
        raise InputError(f"{path}: must be a file, but is {kind}")
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        return _SizeLimitedGzipFile(path, most_ratio) if packed else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def open_text(path: Path, most_ratio: int = MAX_UNPACKED_RATIO) -> IO[str]:
    """Open a file as text, and decompress gzip. Invalid UTF-8 becomes `\\ufffd`.

    Raise `InputError` if it cannot be opened or is not a file. Reading raises `OSError` if the text exceeds the size
    limit of `_SizeLimitedGzipFile`.
    """
    return io.TextIOWrapper(_open_binary(path, most_ratio), encoding="utf-8-sig", errors="replace")


def read_line_blocks(path: Path, skip: int = 0) -> Iterator[bytes]:
    """Yield blocks of whole lines as bytes. Each line ends with a line feed.

    The first `skip` lines are omitted.

    Raise `InputError`, any exception from reading a damaged file, or `OSError` for a line that `read_text_lines` would
    cut.
    """
    mark = codecs.BOM_UTF8
    with _open_binary(path, MAX_UNPACKED_RATIO) as file:
        while block := file.read(_BLOCK_BYTES):
            block += file.readline(4 * MAX_LINE_CHARS)
            if not block.endswith(b"\n"):
                if file.read(1):
                    raise OSError(f"{path}: has a line of more than {MAX_LINE_CHARS:,} characters")
                block += b"\n"
            block, mark = block.removeprefix(mark), b""
            if b"\r" in block:
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if skip:
                block, skip = b"\n".join(block.split(b"\n", skip)[skip:]), max(0, skip - block.count(b"\n"))
            if block:
                yield block


def read_text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines.

    Raise `InvalidTrace` at the line where a damaged file ends. A line longer than `MAX_LINE_CHARS` is truncated to
    `MAX_LINE_CHARS + 1` characters, so that the caller can detect it.
    """
    number = 0
    with open_text(path) as file:
        try:
            for text in iter(partial(file.readline, MAX_LINE_CHARS + 1), ""):
                number += 1
                if len(text) > MAX_LINE_CHARS:
                    _skip_rest_of_line(file, text)
                yield number, text
                if number == MAX_LINES:
                    raise InvalidTrace(path, number, "lines", f"{number:,}", "must not exceed this number")
        except (EOFError, OSError, zlib.error) as error:
            rule = f"must be complete: {error}"
            raise InvalidTrace(path, number + 1, "file", path.name, rule) from error


def _skip_rest_of_line(file: IO[str], text: str) -> None:
    while text and not text.endswith("\n"):
        text = file.readline(MAX_LINE_CHARS)


def has_dated_files(folder: Path) -> bool:
    """Return whether a folder contains files named by date."""
    try:
        return bool(dated_files(folder))
    except InputError:
        return False


def dated_files(path: Path) -> list[Path]:
    """Return the files in a folder that are named by date, or `[path]` for a file.

    The names are YYYYMMDD or YYYYMMDD.gz. The oldest file comes first.

    Raise `InputError` if a folder cannot be listed or contains no such file.
    """
    try:
        if not path.is_dir():
            return [path]
        found = sorted(file for file in path.iterdir() if _DATED_NAME.match(file.name) and file.is_file())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not found:
        raise InputError(f"{path}: is a directory without files named by date, such as 20261122")
    return found
