"""Detect requests that only Slurm can place.

The bridge leaves such jobs to Slurm and reports why. Slurm's own reasons for a pending job, such as `Licenses`, are in
`pending_reasons`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from cpsched.model import PendingReason
from cpsched.slurm_text.jobs import SPECIAL_REQUESTS, SlurmJob
from cpsched_bridge.adapters.shared.adapter_errors import JobNotModelled

_LICENSE = re.compile(r"([\w.@/+-]+)(?:[:=](\d{1,9}))?", re.ASCII)


def parse_requested_licenses(licenses: Sequence[str] | None) -> dict[str, int] | None:
    """Return the number of each license that a job requests or that a reservation holds.

    Return None for alternative licenses or node licenses.
    """
    found: dict[str, int] = {}
    for text in licenses or ():
        match = _LICENSE.fullmatch(text)
        if match is None:
            return None
        found[match[1]] = found.get(match[1], 0) + int(match[2] or 1)
    return found


def count_held_licenses(job: SlurmJob) -> dict[str, int]:
    """Return the licenses that a job with nodes may hold. Of alternatives, it may hold each."""
    found: dict[str, int] = {}
    for text in job.licenses:
        for match in filter(None, map(_LICENSE.fullmatch, text.split("|"))):
            found[match[1]] = found.get(match[1], 0) + int(match[2] or 1)
    return found


def find_uncounted_licenses_reason(job: SlurmJob, known: Collection[str]) -> PendingReason | None:
    """Return why a job's licenses require Slurm to place it.

    Return None if all of them are `known`.
    """
    asked = parse_requested_licenses(job.licenses)
    if asked is None:
        return JobNotModelled("requests alternative licenses").reason
    unknown = [name for name in asked if name not in known]
    what = f"requests licenses whose number is unknown: {', '.join(unknown)}"
    return JobNotModelled("requests licenses", what).reason if unknown else None


class JobNeverFits(JobNotModelled):
    """An error for a job that does not fit on the bridge's model of an empty machine."""


def require_supported_request(job: SlurmJob) -> None:
    """Raise `JobNotModelled` for a request that only Slurm can place."""
    if job.unreadable:
        raise JobNotModelled("cannot be read", f"cannot be read: {', '.join(job.unreadable)}")
    if job.heterogeneous_id:
        raise JobNotModelled("is a heterogeneous job")
    if job.reservation:
        raise JobNotModelled("requests a reservation")
    has_gres = any(name.startswith("gres/") for name in job.requested_tres)
    for name, reason in SPECIAL_REQUESTS.items():
        if name in job.special_requests and (name != "gres_binding" or has_gres):
            raise JobNotModelled(reason)
    if not job.cpus_per_task:
        raise JobNotModelled("requests CPUs per GPU")
    if job.resource_sharing not in ("OK", "NO", "YES"):
        raise JobNotModelled(f"requests nodes that are exclusive per {job.resource_sharing.lower()}")
