"""Count the bridge's calls against slurmctld's per-user limit, and limit how long slurmctld may be silent.

The limit is implemented in Slurm's src/slurmctld/rate_limit.c (23.02 and later, `SlurmctldParameters=rl_enable`). Each
user has a bucket of `rl_bucket_size` tokens (default 30), and slurmctld adds `rl_refill_rate` tokens (default 2) every
`rl_refill_period` seconds (default 1). A call takes one token. root and SlurmUser are exempt. If no token is left,
slurmctld asks for a retry. Slurm's programs then sleep 1, 2, 3 ... seconds and silently repeat the call. The bridge
therefore counts its own calls and waits before it starts a program, never while one runs.

The limit on silence depends on earlier readings. A program that is still printing is not stuck.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cpsched.slurm_text.option_lists import OptionList, parse_config
from cpsched_bridge.errors import BackendTimeout

CALLS_PER_COMMAND: dict[tuple[str, ...], int] = {
    ("squeue",): 2,
    ("sinfo",): 2,
    ("sprio",): 1,
    ("sshare",): 1,
    ("sdiag",): 1,
    ("show", "nodes"): 2,
    ("show", "config"): 2,
}
"""Number of calls that a command makes, by its program or its last two words. Other commands make one call.

The calls were counted with `sdiag` on 26.05.
"""
PROGRAMS_WITHOUT_CALLS = ("sacct", "sacctmgr")
"""Programs that call only the accounting database."""
RESIZING_SETTINGS = ("ReqNodeList=", "NumNodes=")
"""Settings for which scontrol makes 3 calls: it queries the federation and the job before the change."""
FIRST_SLEEP_S = 1.0
SLEEP_S = 30.0
"""Additional seconds for a program under a call limit: it sleeps if another program has taken the tokens."""
RESERVED_BUCKET_SHARE = 0.5
"""Fraction of the bucket that readings leave for commands."""
MAX_READING_WAIT_S = 30.0
"""Maximum wait before a reading in seconds. A longer wait could trigger the dead-man timer."""

_USER_NUMBER = re.compile(r"\((\d{1,10})\)$", re.ASCII)
_BRACKETS = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class SlurmRpcRateLimit:
    """slurmctld's limit on the calls of one user."""

    bucket: int
    refill: int
    period_s: int

    @property
    def calls_per_s(self) -> float:
        """Return the number of calls per second that slurmctld accepts continuously."""
        return self.refill / self.period_s


def parse_rate_limit(config: str, uid: int) -> SlurmRpcRateLimit | None:
    """Return the call limit in the output of `scontrol show config`.

    Return None if there is no limit or this user is exempt.
    """
    settings = parse_config(config)
    parameters = OptionList(settings.get("SlurmctldParameters", ""))
    owner = _USER_NUMBER.search(settings.get("SlurmUser", ""))
    if not parameters.has("rl_enable") or uid == 0 or (owner is not None and uid == int(owner[1])):
        return None

    def positive(name: str, default: int) -> int:
        number = parameters.find_int(name)
        return default if number is None else max(1, number)

    return SlurmRpcRateLimit(
        positive("rl_bucket_size", 30), positive("rl_refill_rate", 2), positive("rl_refill_period", 1)
    )


def make_rate_limit_facts(limit: SlurmRpcRateLimit | None) -> dict[str, float] | None:
    """Return the limit as a fact for the doctor, or None if there is no limit."""
    return None if limit is None else {"bucket": limit.bucket, "per_s": limit.calls_per_s}


def count_slurmctld_calls(command: Sequence[str]) -> int:
    """Return the number of slurmctld calls that a command line makes."""
    if command[0] in PROGRAMS_WITHOUT_CALLS or command[-1] == "--version":
        return 0
    return CALLS_PER_COMMAND.get((command[0],)) or CALLS_PER_COMMAND.get(tuple(command[-2:]), 1)


def count_calls_of_scontrol_input(text: str) -> int:
    """Return the number of calls that scontrol makes for one command on its input.

    A job list needs one call per job, and a node list needs three calls.
    """
    verb, _, rest = text.partition(" ")
    if verb in ("hold", "release"):
        return 1 + _BRACKETS.sub("", rest).count(",")
    return 3 if verb == "update" and any(f" {name}" in text for name in RESIZING_SETTINGS) else 1


@dataclass(slots=True)
class SlurmRpcTokenBucket:
    """A count of the remaining tokens, at most `limit.bucket`.

    Without a limit this class neither counts nor waits. Other programs of the same user also take tokens, so the count
    starts at 0 and `record_duration` corrects it. Calls that do not wait may make the count negative, and later calls
    then wait longer.
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
        """Return the number of seconds to add to a program's deadline."""
        return 0.0 if self.limit is None else SLEEP_S

    def spend(self, calls: int) -> None:
        """Count calls that are made now, even if no tokens remain."""
        if self.limit is not None:
            self._refill_tokens(self.limit)
            self._tokens -= calls

    def count_programs(self, commands: Mapping[str, Sequence[str]], typed: Mapping[str, str]) -> float:
        """Count the calls of programs that start now, and return their extra time in seconds.

        scontrol makes one call for each line of `typed`.
        """
        self.spend(sum(count_slurmctld_calls(command) for name, command in commands.items() if name not in typed))
        self.spend(sum(text.count("\n") for text in typed.values()))
        return self.deadline_extension_s

    def correct_tokens_by_call_duration(self, seconds: float) -> None:
        """Correct the count based on a call's duration in seconds.

        A call that lasted at least as long as a program's first sleep did not get a token at first.
        """
        if self.limit is not None and seconds >= FIRST_SLEEP_S:
            self._refill_tokens(self.limit)
            self._tokens = min(self._tokens, 0.0)

    def wait_s(self, calls: int) -> float:
        """Return the number of seconds until the tokens for these calls are available.

        More calls than the bucket holds require a full bucket.
        """
        if self.limit is None:
            return 0.0
        self._refill_tokens(self.limit)
        return max(0.0, (min(calls, self.limit.bucket) - self._tokens) / self.limit.calls_per_s)

    def acquire_tokens(self, calls: int, most_s: float) -> float | None:
        """Wait for the tokens that these calls need, and take them.

        Return the seconds waited. If the wait would exceed `most_s` seconds, take no tokens and return None.
        """
        needed_s = self.wait_s(calls)
        if needed_s > most_s:
            return None
        if needed_s:
            self.sleep(needed_s)
        self.spend(calls)
        return needed_s

    def wait_for_reading(self, calls: int) -> None:
        """Wait until these calls would leave the commands' share of the bucket unused.

        Wait at most `MAX_READING_WAIT_S`, and take no tokens.
        """
        if self.limit is not None and (needed_s := self.wait_s(calls + int(RESERVED_BUCKET_SHARE * self.limit.bucket))):
            self.sleep(min(needed_s, MAX_READING_WAIT_S))

    def _refill_tokens(self, limit: SlurmRpcRateLimit) -> None:
        now_s = self.clock()
        self._tokens = min(limit.bucket, self._tokens + (now_s - self._at_s) * limit.calls_per_s)
        self._at_s = now_s


MAX_TIMEOUT_FACTOR = 6.0
"""Maximum silence as a multiple of `least_s`, and maximum duration of an answer as a multiple of the silence."""


@dataclass(slots=True)
class AdaptiveIdleTimeout:
    """A limit on how long a program may print nothing, at least `least_s` seconds.

    A reading that times out doubles the limit, and a successful reading halves it.
    """

    least_s: float
    silence_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.silence_s = self.least_s

    @property
    def limit_s(self) -> float:
        """The time limit in seconds for a program that keeps printing a long answer."""
        return MAX_TIMEOUT_FACTOR * self.silence_s

    @contextmanager
    def track_reading(self) -> Iterator[None]:
        """Track the reading inside the context, and adapt the limit to its result."""
        try:
            yield
        except BackendTimeout:
            self.silence_s = min(2 * self.silence_s, MAX_TIMEOUT_FACTOR * self.least_s)
            raise
        self.silence_s = max(self.silence_s / 2, self.least_s)
