"""Parse PBS's text output: reservations, schedulers, resources and vnodes."""

from __future__ import annotations

import re

from cpsched_bridge.adapters.pbs.pbs_objects import UNREADABLE_KEY, PbsCustomResource, Record, list_text_values
from cpsched_bridge.errors import BackendUnavailable

_RESERVATION = re.compile(r"Resv ID:[ \t]*(\S+)", re.ASCII)
_RESOURCE = re.compile(r"Resource[ \t]+(\S+)", re.ASCII)
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
    found: dict[str, PbsCustomResource] = {}
    name = ""
    for line in text.splitlines():
        head = _RESOURCE.fullmatch(line.strip())
        match = _ATTRIBUTE.fullmatch(line)
        if head is not None and not line[:1].isspace():
            name = head[1]
            found[name] = PbsCustomResource("string")
        elif match is not None and name in found:
            kind = found[name]
            if match[1] == "type":
                found[name] = PbsCustomResource(match[2].strip(), kind.flags)
            elif match[1] == "flag":
                found[name] = PbsCustomResource(kind.type, match[2].strip())
    return found


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

    `kind` is the word before each name, "Sched" or "Server". A tab continues a long line.
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
