"""Split the tables and the NAME=VALUE lists that Slurm's commands print."""

from __future__ import annotations

from collections.abc import Iterator


def parse_pipe_table(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a Slurm command's `-P` output: headings, then values."""
    lines = iter(text.replace("\r\n", "\n").split("\n"))  # values may contain other line separators
    headings = next(lines, "").split("|")
    for line in lines:
        values = line.split("|")
        if line.strip() and len(values) >= len(headings) - 1:
            yield dict(zip(headings, values, strict=False))


def parse_key_values(line: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each NAME=VALUE word in a line from `scontrol -o`."""
    for word in line.split():
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
