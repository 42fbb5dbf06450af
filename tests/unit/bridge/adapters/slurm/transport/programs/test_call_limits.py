"""The calls that slurmctld accepts, what they cost and how long they wait, and slurmctld's permitted silence."""

from __future__ import annotations

import contextlib

import pytest

from cpsched_bridge.adapters.slurm.transport.programs.call_limits import (
    MAX_READING_WAIT_S,
    SLEEP_S,
    AdaptiveIdleTimeout,
    SlurmRpcRateLimit,
    SlurmRpcTokenBucket,
    count_calls_of_scontrol_input,
    count_slurmctld_calls,
    parse_rate_limit,
)
from cpsched_bridge.errors import BackendTimeout, BackendUnavailable

DEFAULT = SlurmRpcRateLimit(30, 2, 1)


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def budget(limit: SlurmRpcRateLimit | None, passed_s: float = 0.0) -> tuple[SlurmRpcTokenBucket, Clock]:
    clock = Clock()
    found = SlurmRpcTokenBucket(clock, clock.sleep)
    found.set_limit(limit)
    clock.now_s += passed_s
    return found, clock


@pytest.mark.parametrize(
    ("parameters", "uid", "limit"),
    [
        ("(null)", 2100, None),
        ("idle_on_node_suspend,RL_Enable", 2100, DEFAULT),
        ("rl_enable", 0, None),
        ("rl_enable", 64030, None),
        ("rl_bucket_size=9", 2100, None),
        (
            "rl_enable,rl_bucket_size=90,rl_refill_rate=5,rl_refill_period=10,rl_table_size=8",
            2100,
            SlurmRpcRateLimit(90, 5, 10),
        ),
        ("rl_enable,rl_bucket_size=0,rl_refill_rate=0,rl_refill_period=0", 2100, SlurmRpcRateLimit(1, 1, 1)),
    ],
)
def test_reads_call_limit_from_configuration(parameters: str, uid: int, limit: SlurmRpcRateLimit | None) -> None:
    """Root and SlurmUser are exempt."""
    printed = f"SlurmUser               = slurm(64030)\nSlurmctldParameters     = {parameters}\nSlurmctldPort = 6817\n"
    assert parse_rate_limit(printed, uid) == limit


@pytest.mark.parametrize(
    ("command", "calls"),
    [
        ("squeue --all --Format x", 2),
        ("squeue --version", 0),
        ("scontrol --all show nodes", 2),
        ("scontrol --all show partitions", 1),
        ("scontrol show config", 2),
        ("scontrol --details show job", 1),
        ("sacct -X", 0),
        ("sdiag", 1),
    ],
)
def test_counts_calls_of_program(command: str, calls: int) -> None:
    """As `sdiag` counts them beside 26.05."""
    assert count_slurmctld_calls(command.split()) == calls


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("update JobId=7 Partition=bridge:start/n1/1-1", 1),
        ("update JobId=7 Nice=5", 1),
        ("update JobId=7 ReqNodeList=n1", 3),
        ("update JobId=7 TasksPerNode=2 NumNodes=2-2", 3),
        ("release 7", 1),
        ("release 7,8,19_[1-3,5],9", 4),
        ("hold 19_[1-3,5]", 1),
    ],
)
def test_counts_calls_of_scontrol_input(words: str, calls: int) -> None:
    assert count_calls_of_scontrol_input(words) == calls


def test_unlimited_calls_never_wait() -> None:
    free, clock = budget(None)
    free.spend(1000)
    free.wait_for_reading(1000)
    assert (free.acquire_tokens(1000, 0.0), clock.now_s, free.deadline_extension_s) == (0.0, 100.0, 0.0)


def test_calls_wait_for_tokens_within_maximum() -> None:
    """It begins with none, fills up to the bucket, and takes nothing where it is refused."""
    found, clock = budget(DEFAULT, passed_s=3.0)
    assert found.acquire_tokens(6, 0.0) == 0.0
    assert found.acquire_tokens(3, 1.4) is None
    assert found.acquire_tokens(3, 1.5) == 1.5
    clock.now_s += 1000.0
    assert found.acquire_tokens(40, 0.0) == 0.0, "more than a full bucket is never there"
    assert found.acquire_tokens(1, 9.0) == pytest.approx(5.5), "what was taken beyond it is owed"


def test_counts_programs_outside_cycle_without_waiting() -> None:
    found, clock = budget(DEFAULT, passed_s=10.0)
    asked = {
        "config": ("scontrol", "show", "config"), "qos": ("sacctmgr", "-P", "show", "qos"),
        "shares": ("sshare", "-a", "--json"), "jobs": ("scontrol",),
    }  # fmt: skip
    assert found.count_programs(asked, {"jobs": "show job 1\nshow job 2\n"}) == SLEEP_S
    assert (found.wait_s(20), clock.now_s) == (2.5, 110.0)


def test_call_that_slept_found_no_token() -> None:
    found, _ = budget(DEFAULT, passed_s=10.0)
    found.correct_tokens_by_call_duration(0.9)
    assert found.wait_s(20) == 0.0
    found.correct_tokens_by_call_duration(1.0)
    assert found.wait_s(20) == 10.0


def test_readings_leave_half_of_tokens_to_commands() -> None:
    found, clock = budget(DEFAULT)
    found.wait_for_reading(8)
    assert clock.now_s == pytest.approx(100.0 + (8 + 15) / 2)
    found.spend(8)
    assert found.acquire_tokens(15, 0.0) == 0.0


def test_reading_waits_less_than_deadman_timeout() -> None:
    found, clock = budget(SlurmRpcRateLimit(30, 1, 60))
    found.wait_for_reading(8)
    assert clock.now_s == 100.0 + MAX_READING_WAIT_S


def test_unchanged_limit_keeps_its_tokens() -> None:
    found, _ = budget(DEFAULT, passed_s=5.0)
    found.set_limit(SlurmRpcRateLimit(30, 2, 1))
    assert found.wait_s(10) == 0.0
    found.set_limit(SlurmRpcRateLimit(30, 4, 1))
    assert found.wait_s(10) == 2.5


def test_late_reading_extends_next_timeout() -> None:
    """Other failures extend none."""
    patience = AdaptiveIdleTimeout(10.0)
    seen = []
    for error in (BackendUnavailable, *[BackendTimeout] * 4, None, None, None, None):
        with contextlib.suppress(BackendTimeout, BackendUnavailable), patience.track_reading():
            if error is not None:
                raise error("late")
        seen.append((patience.silence_s, patience.limit_s))
    assert [silence_s for silence_s, _ in seen] == [10.0, 20.0, 40.0, 60.0, 60.0, 30.0, 15.0, 10.0, 10.0]
    assert {limit_s / silence_s for silence_s, limit_s in seen} == {6.0}
