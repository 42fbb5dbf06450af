"""Groups of jobs that back off together.

Jobs of one equivalence class have the same user, account, partition, QOS and request.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from cpsched.model import Job

BackoffKind = Literal["job", "array", "alike", "association", "qos", "partition", "access", "user"]
_TEXTS: dict[BackoffKind, str] = {
    "job": "job {}",
    "array": "array {}",
    "alike": "jobs of user {}{}{} that ask for {}",
    "association": "user {} of account {}",
    "qos": "QOS {} of user {}",
    "partition": "partition {} of user {}",
    "access": "partition {} of user {} with account {} and QOS {}",
    "user": "all jobs of user {}",
}
"""Text of a key of each kind; the placeholders are its names."""


class BackoffKey(NamedTuple):
    """Identifies a group of jobs that are backed off together."""

    kind: BackoffKind
    name: tuple[str, ...]
    """The group's names, in the order of the text. Alike: user, account, partition, QOS, shape."""

    def __str__(self) -> str:
        name = self.name
        if self.kind == "alike":
            user, account, _, qos, shape = name
            name = (user, account and f", account {account}", qos and f", QOS {qos}", shape)
        return _TEXTS[self.kind].format(*name)


def equivalence_key(job: Job) -> BackoffKey:
    """Return the key of the jobs with this job's user, account, partition, QOS and request."""
    return BackoffKey("alike", (job.user, job.account, job.queue, job.qos, request_fingerprint(job)))


def request_fingerprint(job: Job) -> str:
    """Return a text that identifies the request of a job."""
    request = job.request
    amounts = "+".join(map(str, request.per_unit)) + (" exclusively" if request.exclusive else "")
    return f"{request.units} x {amounts} for {job.walltime_s} s in {job.queue or 'any queue'}"
