"""Parse the output of PBS's programs into records: `-F json`, and the text of programs that lack it.

The JSON contains users' text, such as job names and environment variables. Programs before OpenPBS 23 print some of
it as invalid JSON (a variable `005`, a stray backslash). Brackets may be nested more deeply than a JSON parser allows.
The parser therefore works as follows:

- It reads valid JSON as JSON, with every value of a repeated attribute, because PBS repeats limits.
- It reads other output object by object and line by line, in the layout of PBS's programs: one attribute per line, with
  indented parts. It skips the lines of the environment. An unreadable or repeated object is `doubtful`: the reader
  queries it alone, so that no other object's text enters its record.

A record stores each value as text, because `007`, `true` and `1e5` may be job names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cpsched_bridge.adapters.pbs.pbs_objects import (
    UNREADABLE_KEY,
    PbsCustomResource,
    Record,
    UnquotedValue,
    Value,
    list_text_values,
    parse_custom_resource,
)
from cpsched_bridge.errors import BackendUnavailable

USER_TEXT_ATTRIBUTES = frozenset(
    {"Variable_List", "Submit_arguments", "argument_list", "executable", "comment", "jobdir"}
)
"""Job attributes that are skipped because they contain users' text and make up most of the output."""
_OBJECT = re.compile(r'^([ \t]+)"((?:[^"\\\n]|\\.)*)"[ \t]*:[ \t]*\{[ \t]*$', re.MULTILINE)
_LINE = re.compile(r'([ \t]*)"([^"\\]*)"[ \t]*:[ \t]*(.*?),?[ \t]*')
_UNQUOTED = re.compile(r"[-+.\w]+(?:\(\w*\))?", re.ASCII)
"""Pattern for unquoted values, which C parses as numbers: `07`, `.5`, `0x7`, `nan`."""


@dataclass(slots=True)
class ParsedPbsObjects:
    """Records by name, and the names of objects to query alone."""

    records: dict[str, Record] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)


class _JsonObjectPairs(list[tuple[str, Any]]):
    """A JSON object with repeated keys, as a list of pairs."""


_KEEP_PRINTED_FORM: dict[str, Any] = {
    "parse_int": UnquotedValue,
    "parse_float": UnquotedValue,
    "parse_constant": UnquotedValue,
}


def parse_pbs_json(text: str, kind: str) -> ParsedPbsObjects:
    """Return the objects of one kind in a program's output.

    `kind` is "Jobs", "nodes", "Queue" or "Server". Raise `BackendUnavailable` if the text is not PBS output.
    """
    try:
        whole = json.loads(text, object_pairs_hook=_JsonObjectPairs, strict=False, **_KEEP_PRINTED_FORM)
    except (ValueError, RecursionError):
        return _parse_objects_separately(text, kind)
    if not isinstance(whole, _JsonObjectPairs) or "pbs_server" not in dict(whole):
        raise BackendUnavailable(f"the output is not from PBS: {text[:60]!r}")
    found = ParsedPbsObjects()
    for key, value in whole:
        if key == kind and isinstance(value, _JsonObjectPairs):
            for name, each in value:
                if name in found.records or not isinstance(each, _JsonObjectPairs):
                    found.doubtful.add(name)
                found.records[name] = _build_record(each if isinstance(each, _JsonObjectPairs) else _JsonObjectPairs())
    return found


def _build_record(pairs: Iterable[tuple[str, Any]]) -> Record:
    found: Record = {}
    for name, value in pairs:
        if name in USER_TEXT_ATTRIBUTES:
            continue
        parsed = _convert_json_value(value)
        before = found.get(name)
        if before is None:
            found[name] = parsed
        elif isinstance(before, dict) and isinstance(parsed, dict):
            found[name] = {**before, **parsed}
        elif not isinstance(before, dict) and not isinstance(parsed, dict):
            found[name] = (*_to_text_tuple(before), *_to_text_tuple(parsed))
    return found


def _to_text_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _convert_json_value(value: Any) -> Value:
    if isinstance(value, _JsonObjectPairs):
        parts: dict[str, str | tuple[str, ...]] = {}
        for name, each in value:
            parts[name] = (
                (*_to_text_tuple(parts[name]), _convert_json_scalar(each))
                if name in parts
                else _convert_json_scalar(each)
            )
        return parts
    return tuple(map(_convert_json_scalar, value)) if isinstance(value, list) else _convert_json_scalar(value)


def _convert_json_scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return UnquotedValue({True: "True", False: "False", None: ""}[value])
    return UnquotedValue(str(value)[:200])


def _parse_objects_separately(text: str, kind: str) -> ParsedPbsObjects:
    """Return the objects in invalid JSON, each parsed separately."""
    head = re.search(rf'^[ \t]*"{kind}"[ \t]*:[ \t]*\{{[ \t]*$', text, re.MULTILINE)
    if not re.match(r'\s*\{\s*"timestamp"', text) or '"pbs_server"' not in text[: head.start() if head else None]:
        raise BackendUnavailable(f"the output is not from PBS: {text[:60]!r}")
    if not text.rstrip().endswith("}"):
        raise BackendUnavailable(f"PBS's output is truncated: ...{text[-40:]!r}")
    found = ParsedPbsObjects()
    if head is None:
        return found
    body = text[head.end() :]
    first = _OBJECT.search(body)
    if first is None:
        return found
    starts = [each for each in _OBJECT.finditer(body) if each[1] == first[1]]
    ends = [each.start() for each in starts[1:]] + [len(body)]
    for start, end in zip(starts, ends, strict=True):
        name, piece = start[2], body[start.end() : end]
        record = _parse_record_lines(piece, len(start[1].expandtabs()))
        if record is None or name in found.records:
            found.doubtful.add(name)
        found.records[name] = record or {}
    return found


def _parse_record_lines(piece: str, indent: int) -> Record | None:
    """Return the record from the lines indented beyond `indent`.

    Return None if it is unreadable.
    """
    found: Record = {}
    within: dict[str, str | tuple[str, ...]] | None = None
    listed = ""
    skips = False
    depth: int | None = None
    for line in piece.split("\n"):
        here = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        if not line.strip() or here <= indent:
            continue
        depth = here if depth is None else depth
        if here == depth:
            if line.strip()[0] in "}]":
                within, listed, skips = None, "", False
                continue
            parts = _LINE.fullmatch(line)
            if parts is None:
                if skips:
                    continue
                return None
            name, text = parts[2], parts[3]
            within, listed, skips = None, "", name in USER_TEXT_ATTRIBUTES
            if skips:
                continue
            if name in found:
                return None
            if text in ("{", "{}"):
                found[name] = within = {}
                continue
            if text in ("[", "[]"):
                found[name], listed = (), name
                continue
            value = _parse_scalar_text(text)
            if value is None:
                return None
            found[name] = value
        elif skips:
            continue
        elif within is not None:
            parts = _LINE.fullmatch(line)
            value = _parse_scalar_text(parts[3]) if parts else None
            if parts is None or value is None or parts[2] in within:
                return None
            within[parts[2]] = value
        elif listed and (value := _parse_scalar_text(line.strip().rstrip(","))) is not None:
            found[listed] = (*list_text_values(found[listed]), value)
        else:
            return None
    return found


def _parse_scalar_text(text: str) -> str | None:
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = json.loads(text, strict=False)
        except ValueError:
            return text[1:-1]  # a stray backslash or inner quote is kept
        return value if isinstance(value, str) else None
    return UnquotedValue(text) if _UNQUOTED.fullmatch(text) else None


_RESERVATION = re.compile(r"Resv ID:[ \t]*(\S+)", re.ASCII)
_ATTRIBUTE = re.compile(r"[ \t]*([A-Za-z_][\w.-]*)[ \t]*=[ \t]?(.*)", re.ASCII)


def parse_reservations(text: str) -> dict[str, Record]:
    """Return the reservations in the output of `pbs_rstat -F`, by name.

    A tab continues a long line. A repeated reservation is unreadable. Raise `BackendUnavailable` for other text.
    """
    found: dict[str, Record] = {}
    record: Record | None = None
    for line in text.replace("\n\t", "").splitlines():
        if not line.strip():
            continue
        head = _RESERVATION.fullmatch(line.strip()) if not line[:1].isspace() else None
        if head is not None:
            twice = head[1] in found
            record = found.setdefault(head[1], {})
            if twice:
                record[UNREADABLE_KEY] = "is listed twice"
            continue
        match = _ATTRIBUTE.fullmatch(line)
        if record is None:
            raise BackendUnavailable(f"pbs_rstat: unexpected line {line[:60]!r}")
        if match is not None:
            before, text = record.get(match[1]), match[2].strip()
            record[match[1]] = text if before is None else (*list_text_values(before), text)
    return found


def parse_resource_definitions(text: str) -> dict[str, PbsCustomResource]:
    """Return the custom resources in the output of `qmgr -c 'list resource'`, by name."""
    return {name: parse_custom_resource(record) for name, record in parse_qmgr_objects(text, "Resource").items()}


def parse_vnodes(text: str) -> dict[str, dict[str, str]]:
    """Parse the output of `pbsnodes -av` into attributes by vnode name.

    The values are verbatim text.
    """
    found: dict[str, dict[str, str]] = {}
    record: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line[0].isspace():
            record = found[line.strip()] = {}
        elif (match := _ATTRIBUTE.fullmatch(line)) is not None:
            record.setdefault(match[1], match[2])
    return found


def parse_qmgr_objects(text: str, kind: str) -> dict[str, Record]:
    """Return the objects in the output of `list` of `qmgr`, by name.

    `kind` is the word before each name, "Sched", "Server" or "Resource". A tab continues a long line.
    """
    found: dict[str, Record] = {}
    record: Record | None = None
    for line in text.replace("\n\t", "").splitlines():
        head = re.fullmatch(rf"{kind}[ \t]+(\S+)", line.strip(), re.ASCII) if not line[:1].isspace() else None
        if head is not None:
            record = found[head[1]] = {}
        elif record is not None and (match := _ATTRIBUTE.fullmatch(line)) is not None:
            record[match[1]] = match[2].strip()
    return found
