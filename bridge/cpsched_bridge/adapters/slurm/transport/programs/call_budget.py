"""Count the bridge's calls against slurmctld's limit on calls of one user.

Slurm's src/slurmctld/rate_limit.c (23.02 and later, `SlurmctldParameters=rl_enable`): each user has a bucket of
`rl_bucket_size` tokens (30), and each `rl_refill_period` seconds (1) add `rl_refill_rate` of them (2). A call takes
one. root and SlurmUser are exempt. slurmctld asks a call without a token to retry, and Slurm's programs then sleep 1,
2, 3 ... seconds and silently repeat it. So the bridge counts its own calls and waits before it starts a program, never
within one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CALLS: dict[tuple[str, ...], int] = {
    ("squeue",): 2,
    ("sinfo",): 2,
    ("sprio",): 1,
    ("sshare",): 1,
    ("sdiag",): 1,
    ("show", "nodes"): 2,
    ("show", "config"): 2,
}
"""Calls of a command if not one, by its program or its last words; counted by `sdiag` on 26.05."""
NO_CALLS = ("sacct", "sacctmgr")
"""Programs that call only the accounting database."""
RESIZING = ("ReqNodeList=", "NumNodes=")
"""Changes before which scontrol queries the federation and the job: 3 calls."""
FIRST_SLEEP_S = 1.0
SLEEP_S = 30.0
"""Additional time of a program with a limit: it sleeps if another program took the tokens."""
RESERVE = 0.5
"""The part of the bucket that readings leave to commands."""
LONGEST_S = 30.0
"""Maximum wait of a reading: the dead-man timer waits for the next one."""

_PARAMETERS = re.compile(r"^SlurmctldParameters *= ?(.*\brl_enable\b.*)$", re.MULTILINE | re.IGNORECASE)
_SLURM_USER = re.compile(r"^SlurmUser *= .*\((\d{1,10})\)", re.MULTILINE)
_PARAMETER = re.compile(r"rl_(bucket_size|refill_rate|refill_period)=(\d{1,9})", re.IGNORECASE)
_BRACKETS = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class SlurmRpcRateLimit:
    """slurmctld's settings of the limit, in calls."""

    bucket: int
    refill: int
    period_s: int

    @property
    def calls_per_s(self) -> float:
        """Return the calls per second that are always accepted."""
        return self.refill / self.period_s


def parse_rate_limit(config: str, uid: int) -> SlurmRpcRateLimit | None:
    """Return the limit in the output of `scontrol show config`.

    None without a limit, or if this user is exempt.
    """
    set_to = _PARAMETERS.search(config)
    owner = _SLURM_USER.search(config)
    if set_to is None or uid == 0 or (owner is not None and uid == int(owner[1])):
        return None
    parameters = set_to[1]
    found = {name.lower(): int(value) for name, value in _PARAMETER.findall(parameters)}
    return SlurmRpcRateLimit(
        max(1, found.get("bucket_size", 30)),
        max(1, found.get("refill_rate", 2)),
        max(1, found.get("refill_period", 1)),
    )


def rate_limit_facts(limit: SlurmRpcRateLimit | None) -> dict[str, float] | None:
    """Return the limit for the doctor."""
    return None if limit is None else {"bucket": limit.bucket, "per_s": limit.calls_per_s}


def count_calls(command: Sequence[str]) -> int:
    """Return how many calls a program with these words makes."""
    if command[0] in NO_CALLS or command[-1] == "--version":
        return 0
    return CALLS.get((command[0],)) or CALLS.get(tuple(command[-2:]), 1)


def count_update_calls(words: str) -> int:
    """Return how many calls scontrol makes for one command that it reads.

    A list of jobs needs one for each job, a node list needs more.
    """
    verb, _, rest = words.partition(" ")
    if verb in ("hold", "release"):
        return 1 + _BRACKETS.sub("", rest).count(",")
    return 3 if verb == "update" and any(f" {name}" in words for name in RESIZING) else 1


@dataclass(slots=True)
class SlurmRpcTokenBucket:
    """Track the tokens that are left, at most `search_limit.bucket`.

    Without a limit this class neither counts nor waits. Other programs of the same user take tokens as well. So the
    count starts at 0, and `record_duration` corrects it. Calls that do not wait may make it negative: later calls then
    wait
    longer.
    """

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    limit: SlurmRpcRateLimit | None = None
    _tokens: float = field(default=0.0, init=False)
    _at_s: float = field(default=0.0, init=False)

    def set_limit(self, limit: SlurmRpcRateLimit | None) -> None:
        """Apply this limit from now on."""
        if limit != self.limit:
            self.limit, self._at_s, self._tokens = limit, self.clock(), 0.0

    @property
    def deadline_extension_s(self) -> float:
        """Return the addition to the deadline of a program."""
        return 0.0 if self.limit is None else SLEEP_S

    def spend(self, calls: int) -> None:
        """Count calls that are made now, even without tokens."""
        if self.limit is not None:
            self._refill(self.limit)
            self._tokens -= calls

    def begin_background_call(self, command: Sequence[str]) -> float:
        """Count the calls of a program that starts beside the cycle.

        Return its additional time.
        """
        self.spend(count_calls(command))
        return self.deadline_extension_s

    def record_duration(self, seconds: float) -> None:
        """Correct the count by the duration of a call.

        A call that took a program's first sleep found no token.
        """
        if self.limit is not None and seconds >= FIRST_SLEEP_S:
            self._refill(self.limit)
            self._tokens = min(self._tokens, 0.0)

    def wait_s(self, calls: int) -> float:
        """Return the seconds until there are tokens for these calls.

        More calls than the bucket holds need a full bucket.
        """
        if self.limit is None:
            return 0.0
        self._refill(self.limit)
        return max(0.0, (min(calls, self.limit.bucket) - self._tokens) / self.limit.calls_per_s)

    def acquire_tokens(self, calls: int, most_s: float) -> float | None:
        """Wait for the tokens of these calls, and take them.

        Return the seconds waited. If that would exceed `most_s`, return None and take none.
        """
        needed_s = self.wait_s(calls)
        if needed_s > most_s:
            return None
        if needed_s:
            self.sleep(needed_s)
        self.spend(calls)
        return needed_s

    def wait_for_reading(self, calls: int) -> None:
        """Wait until these calls leave `RESERVE` of the bucket to commands.

        Wait at most `LONGEST_S`, and take no token.
        """
        if self.limit is not None and (needed_s := self.wait_s(calls + int(RESERVE * self.limit.bucket))):
            self.sleep(min(needed_s, LONGEST_S))

    def _refill(self, limit: SlurmRpcRateLimit) -> None:
        now_s = self.clock()
        self._tokens = min(limit.bucket, self._tokens + (now_s - self._at_s) * limit.calls_per_s)
        self._at_s = now_s
