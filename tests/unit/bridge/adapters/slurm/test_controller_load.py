"""Parsing slurmctld's load from `sdiag`, and the load from which the bridge sends fewer queries."""

from __future__ import annotations

import pytest

from cpsched_bridge.adapters.slurm.controller_load import (
    OUTPUT_NAME,
    QUERY_INTERVAL_S,
    ControllerLoad,
    ControllerLoadMonitor,
    parse_controller_load,
)
from cpsched_bridge.adapters.slurm.policy.site_policy_commands import BackgroundCommandOutput

STARS = "*******************************************************\n"


def sdiag(threads=3, messages=0, queued=(), user="alice"):
    """What sdiag prints: of 22.05 without `queued`, of newer releases with it where the queue is on."""
    counts = "".join(
        f"\tREQUEST_JOB_INFO                        ( 2003) count:{9 + at} ave_time:312 total_time:9000"
        f"{'' if each is None else f'         queued:{each}      cycle_last:1      cycle_max:4      dropped:0'}\n"
        for at, each in enumerate(queued)
    )
    return (
        f"{STARS}sdiag output at Sun Nov 01 02:30:00 2026 (1793499000)\n"
        f"Data since      Sun Nov 01 00:00:00 2026 (1793491200)\n{STARS}"
        f"Server thread count:  {threads}\nRPC queue enabled:    {int(bool(queued))}\n"
        f"Agent queue size:     {messages}\n"
        "Agent count:          0\nAgent thread count:   0\nDBD Agent queue size: 12\n\n"
        "Jobs submitted: 40\nJobs started:   40\n\n"
        f"Remote Procedure Call statistics by message type\n{counts}"
        "\nRemote Procedure Call statistics by user\n"
        f"\t{user}           (    2001) count:7      ave_time:312    total_time:2184\n"
        "\nPending RPC statistics\n\tNo pending RPCs\n"
    )


@pytest.mark.parametrize(
    ("text", "load"),
    [
        (sdiag(), ControllerLoad(3, 0)),
        (sdiag(messages=77), ControllerLoad(3, 77)),
        (sdiag(queued=(None, None)), ControllerLoad(3, 0)),
        (sdiag(queued=(5, 0, 30)), ControllerLoad(38, 0)),
        ("", None),
        ("No data available. Probably slurmctld is not working\n", None),
        (sdiag().replace("Agent queue size", "Agent queue"), None),
        (sdiag().replace("thread count:  3", "thread count:  many"), None),
        (sdiag().partition("Jobs submitted")[0], ControllerLoad(3, 0)),
    ],
)
def test_load_is_server_threads_and_pending_calls(text, load):
    assert parse_controller_load(text) == load


def test_user_name_cannot_forge_load():
    forged = "x\nServer thread count:  900\nAgent queue size:     900\n\tREQUEST_X ( 1) count:1 queued:900"
    assert parse_controller_load(sdiag(user=forged)) == ControllerLoad(3, 0)


class Played:
    """Answers that a test lays ready; None: still on its way."""

    def __init__(self) -> None:
        self.asked = 0
        self.ready: list[BackgroundCommandOutput | None] = []

    def start(self) -> None:
        self.asked += 1

    def collect_output(self, wait: bool = False) -> BackgroundCommandOutput | None:
        assert not wait, "no cycle waits for it"
        return self.ready.pop(0) if self.ready else None

    def close(self) -> None:
        pass


class Scene:
    def __init__(self):
        self.now_s, self.asking = 0.0, Played()
        self.watch = ControllerLoadMonitor(self.asking, lambda: self.now_s)
        self.watch.poll()

    def answered(self, text):
        """What is said once slurmctld has answered so."""
        self.asking.ready = [
            BackgroundCommandOutput(
                {OUTPUT_NAME: text} if text else {}, {} if text else {OUTPUT_NAME: "no response within 10 s"}
            )
        ]
        return self.watch.poll()


@pytest.mark.parametrize(
    ("load", "busy"),
    [
        ({"threads": 99, "messages": 999}, ""),
        ({"threads": 100}, "slurmctld has 100 concurrent requests (limit: 100)"),
        ({"messages": 1000}, "slurmctld has 1,000 unsent messages (limit: 1,000)"),
    ],
)
def test_controller_is_busy_from_its_limits(load, busy):
    assert Scene().answered(sdiag(**load)) == busy


def test_polls_busy_controller_every_cycle_and_idle_one_rarely():
    scene = Scene()
    assert scene.asking.asked == 1
    scene.answered(sdiag())
    for scene.now_s in (1.0, QUERY_INTERVAL_S - 0.1):
        scene.watch.poll()
    assert scene.asking.asked == 1
    scene.now_s = QUERY_INTERVAL_S
    scene.watch.poll()
    assert scene.asking.asked == 2
    scene.answered(sdiag(threads=200))
    assert scene.asking.asked == 3


def test_starts_one_query_at_a_time_and_ignores_empty_reply():
    scene = Scene()
    scene.answered(sdiag(threads=200))
    assert scene.asking.asked == 2
    scene.now_s = 1000.0
    assert scene.watch.poll().startswith("slurmctld has 200")
    assert scene.asking.asked == 2
    assert scene.answered("").startswith("slurmctld has 200"), "no answer is no news"
    assert scene.answered(sdiag()) == ""
