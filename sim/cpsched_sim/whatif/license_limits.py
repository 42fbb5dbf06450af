"""Licenses: their totals, the amounts that jobs hold, and limits in a replay.

If too few licenses are free, Slurm's main loop and backfill skip the job and continue with the next one
(`license_job_test` in `job_scheduler.c` and `backfill.c`, 22.05 to 26.05, without `bf_licenses`). Each license is
therefore another limit on a sum over the running jobs.

A license has two names. Jobs request the trackable resource `license/NAME`, if `AccountingStorageTRES` lists it.
`scontrol show license` reports the total of NAME. Slurm compares the two names in lower case.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from cpsched.errors import InvalidValue, require
from cpsched.formatting import format_count
from cpsched.site.limit_checks import LICENSE
from cpsched.slurm_text.site_policy import parse_licenses
from cpsched_sim.cluster.simulated_accounting import Amounts, Totals
from cpsched_sim.errors import InvalidSystem, quote_value
from cpsched_sim.input.input_limits import MAX_AMOUNT
from cpsched_sim.input.text_line_reader import read_text_lines

LICENSES_OPTION = "--licenses"
MAX_LISTED_LICENSES = 10
_LICENSE_TOTAL = re.compile(r"(.+)[=:](\d{1,18})", re.ASCII)

# ------------------------------------------------------------------------------------------ totals


def read_license_totals(path: Path) -> dict[str, int]:
    """Parse the output of `scontrol show license`. Raise `InvalidSystem`.

    A license without a single amount is omitted.
    """
    licenses = parse_licenses("".join(line for _, line in read_text_lines(path)))
    for license in licenses:
        total = license.total
        if not (total.isascii() and total.isdecimal() and int(total) <= MAX_AMOUNT):
            rule = f"must be a whole number of at most {MAX_AMOUNT:,}"
            raise InvalidSystem(path, license.line, "Total", total, rule)
        if not license.name:
            raise InvalidSystem(path, license.line, "LicenseName", "", "must come before its Total")
    return {license.name.lower(): int(license.total) for license in licenses if license.has_one_amount}


def parse_license_totals(text: str) -> dict[str, int]:
    """Parse `matlab=10,ansys=4`, or the form with colons of `Licenses` in slurm.conf.

    Raise `InvalidValue`.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _LICENSE_TOTAL.fullmatch(part)
        if not match or int(match[2]) > MAX_AMOUNT:
            raise InvalidValue(LICENSES_OPTION, part, f"must be NAME=NUMBER, with a number of at most {MAX_AMOUNT:,}")
        found[match[1].removeprefix(LICENSE).lower()] = int(match[2])
    require(bool(found), LICENSES_OPTION, text, "must contain at least one license")
    return found


def why_licenses_insufficient(licenses: Amounts, totals: Totals) -> str:
    """Return why a job can never run, or "" if it requests no more than the totals."""
    for name, amount in licenses:
        if (total := totals.get(name.lower())) is not None and amount > total:
            return f"{LICENSE}{quote_value(name)} only {total:,} exist"
    return ""


# ------------------------------------------------------------------------------------------ notes


def license_notes(asked: Iterable[Amounts], held: Iterable[tuple[int, int, Amounts]], totals: Totals) -> Iterator[str]:
    """Yield notes on the licenses that jobs request, and on those that they held.

    Each item of `held` is (from, until, amounts).
    """
    wanted = Counter(name.lower() for licenses in asked for name, _ in licenses)
    if known := {name: totals[name] for name in sorted(wanted) if name in totals}:
        yield f"licenses limited in the replay: {_abbreviate_license_names(f'{n} {t:,}' for n, t in known.items())}"
    if strange := [f"{name} ({format_count(wanted[name], 'job')})" for name in sorted(wanted) if name not in totals]:
        yield (
            f"licenses not replayed, because their totals are unknown (set {LICENSES_OPTION}): "
            f"{_abbreviate_license_names(strange)}"
        )
    if unasked := sorted(totals.keys() - wanted.keys()):
        yield (
            "licenses that no job requests, as far as AccountingStorageTRES tracks them: "
            f"{_abbreviate_license_names(unasked)}"
        )
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for begin_s, end_s, licenses in held:
        for name, amount in licenses:
            changes[name.lower()] += [(begin_s, amount), (end_s, -amount)]
    for name, total in known.items():
        if (most := peak_amount(changes[name])) > total:
            yield (
                f"license {quote_value(name)}: {most:,} were in use at once, more than the total of {total:,} in the "
                f"replay: set the real total with {LICENSES_OPTION}"
            )


def _abbreviate_license_names(words: Iterable[str]) -> str:
    every = [quote_value(word) for word in words]
    return ", ".join(every[:MAX_LISTED_LICENSES]) + (
        f" and {len(every) - MAX_LISTED_LICENSES:,} more" * (len(every) > MAX_LISTED_LICENSES)
    )


def peak_amount(changes: Iterable[tuple[int, int]]) -> int:
    """Return the maximum amount in use, given changes as (second, amount).

    Within a second, releases are applied first.
    """
    return max(accumulate((change for _, change in sorted(changes)), initial=0))
