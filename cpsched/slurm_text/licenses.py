"""Parse a cluster's licenses, as `scontrol show license` prints them."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from cpsched.slurm_text.tables import parse_name_values

_COUNT = re.compile(r"\d{1,9}", re.ASCII)


class SlurmLicense(NamedTuple):
    """A license.

    - `total`: how many licenses exist, as printed on `line`.
    - `usable`: how many licenses jobs may hold now, or None if this is unknown. Licenses that are reserved now, which
      Slurm counts as free, or that other clusters hold do not count.
    - `has_one_amount`: whether the license is printed once and without a `Mode`. A `Mode` marks a hierarchical
      resource, which has an amount for each set of nodes.
    """

    name: str
    total: str
    line: int
    usable: int | None
    has_one_amount: bool


def parse_licenses(text: str) -> list[SlurmLicense]:
    """Return the licenses in the output of `scontrol show license`, with or without `-o`."""
    records: list[dict[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        values = parse_name_values(line)
        if "LicenseName" in values or ("Total" in values and not records):
            records.append({"LicenseName": "", "line": str(number)})
        if records:
            records[-1] |= values | ({"line": str(number)} if "Total" in values else {})
    printed = Counter(values["LicenseName"].lower() for values in records)
    return [_make_license(values, printed[values["LicenseName"].lower()] == 1) for values in records]


def _make_license(values: dict[str, str], is_printed_once: bool) -> SlurmLicense:
    counts = [values.get("Used", ""), values.get("Free", ""), values.get("Reserved", "0")]
    usable: int | None = None
    if all(map(_COUNT.fullmatch, counts)):
        used, free, reserved = map(int, counts)
        usable = max(0, used + free - reserved)
    return SlurmLicense(
        values["LicenseName"],
        values.get("Total", ""),
        int(values["line"]),
        usable,
        is_printed_once and "Mode" not in values,
    )
