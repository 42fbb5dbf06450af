"""Parse Slurm's limits, amounts of resources and times."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from cpsched.errors import InvalidValue, require
from cpsched.site.accounts import AccountingLimits
from cpsched.slurm_text.option_lists import has_flag

_MEBI_PER_UNIT = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_NO_LIMIT = ("", "N", "-1", "UNLIMITED", "INFINITE", "NONE")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")

LIMIT_FIELDS: Mapping[str, str] = {
    "GrpJobs": "group_jobs",
    "GrpTRES": "group_tres",
    "GrpTRESMins": "group_tres_minutes",
    "GrpTRESRunMins": "group_running_minutes",
    "GrpWall": "group_wall_min",
    "MaxJobs": "jobs",
    "MaxWall": "wall_min",
    "MaxWallPJ": "wall_min",
    "MaxWallDurationPerJob": "wall_min",
    "MaxTRES": "tres",
    "MaxTRESPJ": "tres",
    "MaxTRESPerJob": "tres",
    "MaxTRESPN": "tres_a_node",
    "MaxTRESPerNode": "tres_a_node",
    "MaxTRESMins": "tres_minutes",
    "MaxTRESMinsPJ": "tres_minutes",
    "MaxTRESMinsPerJob": "tres_minutes",
    "MinTRES": "least_tres",
    "MinTRESPJ": "least_tres",
    "MinTRESPerJob": "least_tres",
    "MaxJobsPU": "jobs_a_user",
    "MaxJobsPerUser": "jobs_a_user",
    "MaxJobsPA": "jobs_an_account",
    "MaxJobsPerAccount": "jobs_an_account",
    "MaxTRESPU": "tres_a_user",
    "MaxTRESPerUser": "tres_a_user",
    "MaxTRESPA": "tres_an_account",
    "MaxTRESPerAccount": "tres_an_account",
    "MaxTRESRunMinsPU": "running_minutes_a_user",
    "MaxTRESRunMinsPerUser": "running_minutes_a_user",
    "MaxTRESRunMinsPA": "running_minutes_an_account",
    "MaxTRESRunMinsPerAccount": "running_minutes_an_account",
}
"""Fields of `AccountingLimits` by Slurm's name for the limit, in all spellings."""
SUBMISSION_LIMITS = (
    "GrpSubmit", "GrpSubmitJobs", "MaxSubmit", "MaxSubmitJobs", "MaxSubmitPU", "MaxSubmitPA", "MaxSubmitJobsPU",
    "MaxSubmitJobsPA",
)  # fmt: skip
"""Limits on submission. Slurm rejects jobs that exceed them, so no scheduler receives these jobs."""
UNMODELLED_LIMITS = (
    "GrpJobsAccrue", "MaxJobsAccrue", "MaxJobsAccruePU", "MaxJobsAccruePA", "MinPrioThresh", "MinPrioThres",
    "UsageThreshold", "UsageThres",
)  # fmt: skip
"""Limits that are not modelled. Only Slurm itself enforces them."""
HARMLESS_QOS_FLAGS = ("DenyOnLimit", "RequiresReservation", "PartQOS", "Deleted")
"""Flags of a QOS that change which jobs Slurm accepts, or that Slurm sets itself. They change no start."""
_LIMIT_NAME = re.compile(r"(Grp|Max|Min)[A-Z]")
"""Pattern for the names of limits, with which limits of later releases begin too."""


def parse_whole_number(name: str, text: str, default: int = 0) -> int:
    """Return a whole number, or the default if it is not set. Raise `InvalidValue`."""
    require(not text or (text.isascii() and text.isdecimal()), name, text, "must be a whole number")
    return int(text) if text else default


def parse_tres(text: str) -> dict[str, int]:
    """Return the limited amounts by resource (memory in MiB). Raise `InvalidValue`.

    >>> parse_tres("cpu=64,mem=2G,gres/gpu=N")
    {'cpu': 64, 'mem': 2048}
    """
    found: dict[str, int] = {}
    for part in filter(None, text.replace(" ", "").split(",")):
        name, equals, amount = part.partition("=")
        require(bool(name and equals), "tres", part, "must be NAME=AMOUNT")
        if amount.partition("(")[0].upper() not in _NO_LIMIT:
            found[name] = _parse_tres_amount(name, amount.partition("(")[0])
    return found


def _parse_tres_amount(name: str, text: str) -> int:
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    factor = (
        _MEBI_PER_UNIT.get(unit, 0) if name == "mem" and unit else 1 if not unit else 1024 * _MEBI_PER_UNIT.get(unit, 0)
    )
    try:
        value = int(float(digits) * factor) if factor or not unit else -1
    except (ValueError, OverflowError):
        value = -1
    require(value >= 0, f"tres {name}", text, "must be a whole number, optionally with K, M, G or T")
    return value


def parse_slurm_time_min(text: str) -> int | None:
    """Convert a time in Slurm's syntax to minutes, rounded up; None means no limit.

    >>> [parse_slurm_time_min(text) for text in ("1-12", "02:30:00", "90", "UNLIMITED")]
    [2160, 150, 90, None]
    """
    seconds = parse_slurm_time_s(text)
    return None if seconds is None else -(-seconds // 60)


def parse_slurm_time_s(text: str) -> int | None:
    """Convert a time in Slurm's syntax to seconds; None means no limit.

    The forms are M, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
    """
    text = text.strip()
    if text.upper() in _NO_LIMIT:
        return None
    match = _TIME.fullmatch(text)
    require(match is not None, "time", text, "must be minutes, or [days-]hours:minutes:seconds")
    assert match is not None
    days, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match.group(1) is not None or match.group(4) is not None:
        hours, minutes, seconds = first, second, third
    else:
        hours, minutes, seconds = 0, first, second
    return (days * 1440 + hours * 60 + minutes) * 60 + seconds


def parse_accounting_limits(texts: Mapping[str, str]) -> AccountingLimits:
    """Return the limits in `texts`, by Slurm's names. Raise `InvalidValue`.

    Other names are ignored.

    >>> found = parse_accounting_limits({"MaxJobs": "2", "GrpTRES": "cpu=8", "QOS": "normal"})
    >>> found.jobs, found.group_tres
    (2, {'cpu': 8})
    """
    found: dict[str, object] = {}
    for name, text in texts.items():
        field = LIMIT_FIELDS.get(name)
        if field is None:
            continue
        try:
            value = _parse_accounting_limit(field, str(text))
        except InvalidValue as error:
            raise InvalidValue(name, error.value, error.rule) from error
        if value is not None and value != {}:
            found[field] = value
    return AccountingLimits(**found)  # type: ignore[arg-type]  # each value has the type of its field


def _parse_accounting_limit(field: str, text: str) -> int | dict[str, int] | None:
    if field.endswith("_min"):
        return parse_slurm_time_min(text.partition("(")[0])
    if "tres" in field or "minutes" in field:
        return parse_tres(text)
    word = text.partition("(")[0].strip()
    if word.upper() in _NO_LIMIT:
        return None
    require(word.isdigit(), "number", text, "must be a whole number")
    return int(word)


def unsupported_limits(texts: Mapping[str, str]) -> list[str]:
    """Return the names of limits that `texts` sets but that are not modelled, including limits of later releases.

    >>> unsupported_limits({"MinPrioThresh": "", "MaxJobsAccrue": "3(0)", "GrpLater": "cpu=N(4),mem=9", "MaxJobs": "1"})
    ['MaxJobsAccrue', 'GrpLater']
    """
    known = LIMIT_FIELDS.keys() | set(SUBMISSION_LIMITS)
    return [
        name
        for name, text in texts.items()
        if name not in known and (name in UNMODELLED_LIMITS or _LIMIT_NAME.match(name)) and _is_limit_set(text)
    ]


def _is_limit_set(text: str) -> bool:
    """Return whether a limit is set, for a list of resources for at least one of them."""
    amounts = (part.rpartition("=")[2].partition("(")[0].strip().upper() for part in text.split(","))
    return any(amount not in (*_NO_LIMIT, "0.000000") for amount in amounts)


def unsupported_qos_flags(text: str, modelled: Collection[str]) -> list[str]:
    """Return the flags in a QOS's `Flags` that are neither `modelled` nor harmless, with flags of later releases."""
    flags = filter(None, map(str.strip, text.split(",")))
    return [flag for flag in flags if not has_flag((*modelled, *HARMLESS_QOS_FLAGS), flag)]
