"""Jobs that are alike: of one user, account, partition and QOS, and asking for the same."""

from __future__ import annotations

from typing import NamedTuple

from cpsched.model import Job


class Likes(NamedTuple):
    """What jobs share that are alike."""

    user: str
    account: str
    partition: str
    qos: str
    shape: str

    def __str__(self) -> str:
        told = [f"user {self.user}", self.account and f"account {self.account}", self.qos and f"QOS {self.qos}"]
        return f"jobs of {', '.join(filter(None, told))} that ask for {self.shape}"


def likes_of(job: Job) -> Likes:
    """Whom the job is like."""
    return Likes(job.user, job.account, job.queue, job.qos, asked(job))


def asked(job: Job) -> str:
    """What a job asks for, in words that change when it asks for something else."""
    request = job.request
    amounts = "+".join(map(str, request.per_unit)) + (" exclusively" if request.exclusive else "")
    return f"{request.units} x {amounts} for {job.walltime_s} s in {job.queue or 'any queue'}"
