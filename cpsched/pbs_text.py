"""Parse PBS requests, sizes and durations from commands and accounting logs.

- `select`: chunks joined by `+`, such as `2:ncpus=4:mem=8gb+1:ncpus=1`. Values may be quoted.
- `place`: an arrangement, a sharing mode and a group, such as `scatter:excl:group=rack`.
- sizes such as `24684084kb`, durations such as `36:00:00`.

Sources: the OpenPBS manual page `pbs_resources(7B)` and the functions `decode_time` and `to_size`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cpsched.errors import InvalidValue, escape_controls

_SIZE = re.compile(r"(\d{1,18})([kmgtpe]?)([bw]?)", re.ASCII | re.IGNORECASE)
_UNIT_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50, "e": 60}
_WORD_BYTES = 8
_DURATION = re.compile(r"(?:(?:(\d{1,12}):)?(\d{1,12}):)?(\d{1,12})(?:\.\d*)?", re.ASCII)
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^+"'])+""")
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|[^:"'])+""")
_COUNT = re.compile(r"\d{1,12}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_MAX_QUOTED_CHARS = 60
"""Maximum number of characters that an error message quotes from invalid text."""


@dataclass(frozen=True, slots=True)
class PbsSelectChunk:
    """`count` equal chunks. `asked` is each chunk's request by resource."""

    count: int
    asked: dict[str, str]


@dataclass(frozen=True, slots=True)
class PbsPlaceDirective:
    """The placement of chunks. `unknown` contains words that are not in PBS's manual."""

    arrangement: str = "free"
    sharing: str = ""
    group: str = ""
    unknown: tuple[str, ...] = ()


def parse_size_bytes(text: str, field: str = "size") -> int:
    """Return the bytes in a size such as `24684084kb`. Raise `InvalidValue`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise InvalidValue(field, escape_controls(text[:_MAX_QUOTED_CHARS]), "must be a size like 100mb")
    return (int(found[1]) << _UNIT_SHIFTS[found[2].lower()]) * (_WORD_BYTES if found[3].lower() == "w" else 1)


def parse_duration_s(text: str, field: str = "duration") -> int:
    """Return the seconds in a duration, such as `36:00:00`. Raise `InvalidValue`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidValue(field, escape_controls(text[:_MAX_QUOTED_CHARS]), "must be a time like 36:00:00, or seconds")
    return int(found[1] or 0) * 3600 + int(found[2] or 0) * 60 + int(found[3])


def parse_pbs_select(select: str, field: str = "select") -> list[PbsSelectChunk]:
    """Return the chunks in a `select` value, in order. Raise `InvalidValue`."""
    parts = _PART.findall(select)
    if "+".join(parts) != select or not parts:
        raise _invalid_select(field, select)
    return [_parse_chunk(part, field, select) for part in parts]


def _parse_chunk(part: str, field: str, select: str) -> PbsSelectChunk:
    words = _WORD.findall(part)
    if ":".join(words) != part:
        raise _invalid_select(field, select)
    count = int(words.pop(0)) if _COUNT.fullmatch(words[0]) else 1
    asked: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and _NAME.fullmatch(name)) or name in asked:
            raise _invalid_select(field, select)
        asked[name] = value.strip("\"'")
    return PbsSelectChunk(count, asked)


def _invalid_select(field: str, select: str) -> InvalidValue:
    return InvalidValue(field, escape_controls(select[:_MAX_QUOTED_CHARS]), "must be like 2:ncpus=4:mem=1gb+1:ncpus=1")


def parse_pbs_place(text: str) -> PbsPlaceDirective:
    """Return a parsed `place` value. The last of several words of one kind applies."""
    arrangement, sharing, group, unknown = "free", "", "", []
    for word in filter(None, text.split(":")):
        if word in ("free", "pack", "scatter", "vscatter"):
            arrangement = word
        elif word in ("excl", "exclhost", "shared"):
            sharing = word
        elif word.startswith("group="):
            group = word.removeprefix("group=")
        else:
            unknown.append(word)
    return PbsPlaceDirective(arrangement, sharing, group, tuple(unknown))
