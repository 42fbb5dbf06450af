"""Define keys for groups of jobs that back off together.

Jobs in one equivalence class have the same user, account, partition, QOS and request.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cpsched.model import Job

BackoffKind = Literal["job", "array", "alike", "association", "qos", "partition", "access", "user"]
_TEXT_BY_KIND: dict[BackoffKind, str] = {
    "job": "job {}",
    "array": "array {}",
    "alike": "jobs{} that request {}",
    "association": "user {} in account {}",
    "qos": "QOS {} of user {}",
    "partition": "partition {} of user {}",
    "access": "partition {} of user {} with account {} and QOS {}",
    "user": "all jobs of user {}",
}
"""Text for each kind of key, with placeholders for the names."""


class BackoffGroupKey(NamedTuple):
    """The key of a group of jobs that back off together."""

    kind: BackoffKind
    name: tuple[str, ...]
    """Names for the placeholders in `_TEXT_BY_KIND`. For `alike`: user, account, partition, QOS, request."""

    def __str__(self) -> str:
        name = self.name
        if self.kind == "alike":
            user, account, _, qos, request = name
            whose = (f"{what} {value}" for what, value in (("user", user), ("account", account), ("QOS", qos)) if value)
            owners = ", ".join(whose)
            name = (owners and f" of {owners}", request)
        return _TEXT_BY_KIND[self.kind].format(*name)


def make_equivalence_class_key(job: Job) -> BackoffGroupKey:
    """Return the key of a job's class: its user, account, partition, QOS and request."""
    return BackoffGroupKey("alike", (job.user, job.account, job.queue, job.qos, make_request_fingerprint(job)))


def make_request_fingerprint(job: Job) -> str:
    """Return text that identifies a job's request."""
    request = job.request
    amounts = "+".join(map(str, request.per_unit)) + (" exclusively" if request.exclusive else "")
    return f"{request.units} x {amounts} for {job.walltime_s} s in {job.queue or 'any queue'}"
