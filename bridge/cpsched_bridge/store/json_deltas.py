"""Compute and apply deltas between JSON values, and store series as deltas.

A delta is itself JSON: null for two equal values, otherwise a list that begins with the kind of delta:

- `[0, value]`: the new value is `value`.
- `[1, {key: delta}, [keys]]`: in a mapping, the changed and new entries, and the removed keys.
- `[2, [[position, delta]]]`: in a list of the same length, the changed elements.
- `[3, [positions], [[position, value]]]`: in a list without repetitions, the old positions of removed elements, then
  the inserted elements with their new positions. A moved element is removed and inserted again.

>>> compute_delta({"queue": [7, 8, 9], "now": 1}, {"queue": [8, 9, 10], "now": 2})
[1, {'queue': [3, [0], [[2, 10]]], 'now': [0, 2]}]
>>> apply_delta({"queue": [7, 8, 9], "now": 1}, [1, {"queue": [3, [0], [[2, 10]]], "now": [0, 2]}])
{'queue': [8, 9, 10], 'now': 2}
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from cpsched_bridge.ordered_subsequence import find_longest_ordered_subsequence
from cpsched_bridge.store.corruption_checks import convert_content_errors

Json = Any

_VALUE, _MAPPING, _ELEMENTS, _MOVES = range(4)
_MISSING = object()
_PLAIN_TYPES = frozenset({int, float, str})
_COMPRESSION_LEVEL = 6


def compute_delta(before: Json, after: Json) -> Json:
    """Return the delta from `before` to `after`, or None if they are equal.

    `true` differs from 1, but 1 equals 1.0.
    """
    if before is after:
        return None
    if type(before) is type(after):
        if isinstance(after, dict):
            return _compute_mapping_delta(before, after)
        if isinstance(after, list):
            return _compute_list_delta(before, after)
        if before == after:
            return None
    elif before == after and not isinstance(before, bool) and not isinstance(after, bool):
        return None
    return [_VALUE, after]


def apply_delta(before: Json, change: Json) -> Json:
    """Return `before` with the delta `change` applied, without modifying `before`."""
    if change is None:
        return before
    kind = change[0]
    if kind == _VALUE:
        return change[1]
    if kind == _MAPPING:
        found = dict(before)
        for key in change[2] if len(change) > 2 else ():
            del found[key]
        for key, inner in change[1].items():
            found[key] = apply_delta(found.get(key), inner)
        return found
    if kind == _ELEMENTS:
        elements = list(before)
        for position, inner in change[1]:
            elements[position] = apply_delta(elements[position], inner)
        return elements
    gone = set(change[1])
    elements = [element for position, element in enumerate(before) if position not in gone]
    for position, element in change[2]:
        elements.insert(position, element)
    return elements


def _compute_mapping_delta(before: dict[str, Json], after: dict[str, Json]) -> Json:
    changes = {}
    for key, value in after.items():
        known = before.get(key, _MISSING)
        if known is value or (known == value and type(known) is type(value) and type(value) in _PLAIN_TYPES):
            continue  # by far the most common case
        if (change := compute_delta(known, value)) is not None:
            changes[key] = change
    gone = sorted(before.keys() - after.keys()) if before.keys() != after.keys() else []
    if gone:
        return [_MAPPING, changes, gone]
    return [_MAPPING, changes] if changes else None


def _compute_list_delta(before: list[Json], after: list[Json]) -> Json:
    if before == after and _are_numbers_or_strings(before) and _are_numbers_or_strings(after):
        return None
    if _are_distinct_strings_or_integers(before) and _are_distinct_strings_or_integers(after):
        moves = _compute_smallest_list_delta(before, after)
        # If most elements differ, the new list is shorter than the delta.
        return moves if len(moves[1]) + 2 * len(moves[2]) <= len(after) else [_VALUE, after]
    if len(before) == len(after):
        changes = [
            [i, c] for i, pair in enumerate(zip(before, after, strict=True)) if (c := compute_delta(*pair)) is not None
        ]
        if not changes:
            return None
        return [_ELEMENTS, changes] if 2 * len(changes) < len(after) else [_VALUE, after]
    return [_VALUE, after]


def _are_numbers_or_strings(values: list[Json]) -> bool:
    """Return whether all values are numbers or strings.

    Other values cannot be compared with `==`, which treats `true` as 1, even in nested values.
    """
    return _PLAIN_TYPES.issuperset(map(type, values))


def _are_distinct_strings_or_integers(values: list[Json]) -> bool:
    """Return whether all values are distinct strings or integers."""
    return set(map(type, values)) <= {int, str} and len(set(values)) == len(values)


def _compute_smallest_list_delta(before: list[Json], after: list[Json]) -> list[Json]:
    """Return the smallest delta that only removes and inserts elements.

    It keeps a longest common subsequence.
    """
    place = {element: position for position, element in enumerate(before)}
    common = [place[element] for element in after if element in place]
    if any(common[i] > common[i + 1] for i in range(len(common) - 1)):
        common = [common[at] for at in find_longest_ordered_subsequence(common)]
    staying = {before[position] for position in common}
    out = [position for position, element in enumerate(before) if element not in staying]
    put = [[position, element] for position, element in enumerate(after) if element not in staying]
    return [_MOVES, out, put]


def encode_json(value: Json) -> bytes:
    """Return `value` as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


class JsonDeltaWriter:
    """A writer that encodes each value of a series as a compressed delta."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_COMPRESSION_LEVEL)
        self._before: Json = None

    def encode_next(self, value: Json) -> bytes:
        """Return the next part. The caller must not modify `value` afterwards.

        The writer compares the next value to `value`.
        """
        text = encode_json(compute_delta(self._before, value))
        self._before = value
        return self._compressor.compress(text) + self._compressor.flush(zlib.Z_SYNC_FLUSH)


class JsonDeltaReader:
    """A reader that decodes the parts of a `JsonDeltaWriter`, starting with the first."""

    def __init__(self) -> None:
        self._decompressor = zlib.decompressobj()
        self.value: Json = None
        """The value after the last decoded part."""

    def decode_next(self, part: bytes) -> None:
        """Read the next part and update `value`. Raise `CorruptFileContent`."""
        with convert_content_errors():
            self.value = apply_delta(self.value, json.loads(self._decompressor.decompress(part)))
