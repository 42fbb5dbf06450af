"""Groups of jobs that are backed off together, above all those that are alike.

Jobs are alike that are of one user, account, partition and QOS, and ask for the same.
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
"""How people read a key of each kind; the placeholders are its name."""


class BackoffKey(NamedTuple):
    """Identifies a group of jobs that are backed off together."""

    kind: BackoffKind
    name: tuple[str, ...]
    """The names that identify the group, in the order of the text. Alike: user, account, partition, QOS, shape."""

    def __str__(self) -> str:
        name = self.name
        if self.kind == "alike":
            user, account, _, qos, shape = name
            name = (user, account and f", account {account}", qos and f", QOS {qos}", shape)
        return _TEXTS[self.kind].format(*name)


def equivalence_key(job: Job) -> BackoffKey:
    """Return the key of the jobs that are like this one: of one user, account, partition and QOS, and of one shape."""
    return BackoffKey("alike", (job.user, job.account, job.queue, job.qos, request_fingerprint(job)))


def request_fingerprint(job: Job) -> str:
    """What a job asks for, in words that change when it asks for something else."""
    request = job.request
    amounts = "+".join(map(str, request.per_unit)) + (" exclusively" if request.exclusive else "")
    return f"{request.units} x {amounts} for {job.walltime_s} s in {job.queue or 'any queue'}"
