"""The order of tests among several processes: slow files first, so that no process ends the run with one of them alone.

`pytest -n 4 --dist worksteal` gives each process a quarter of the tests, as they were collected, and lets a process
without work take the last tests of another. Tests of a folder are collected together. So one process had nearly all
slow tests, and the others took these from it at the very end.
"""

from __future__ import annotations

from collections.abc import Sequence

SLOW = (
    "integration/test_equals_simulator.py",
    "chaos/test_chaos.py",
    "integration/test_tuner_beside_a_bridge.py",
    "properties/test_dispatchers.py",
    "unit/sim/study/test_dask.py",
    "fuzz/test_files.py",
    "chaos/test_two_bridges.py",
    "integration/test_sigkill.py",
    "integration/test_cli.py",
    "unit/bridge/program/test_refusals.py",
    "unit/sim/study/test_adversity.py",
    "unit/cpsched/compile/test_kernel_cache.py",
    "unit/deploy/test_deadman.py",
    "integration/test_demo.py",
    "unit/bridge/cycle/test_apart.py",
    "unit/sim/workloads/test_lublin.py",
    "pbs/test_chaos.py",
    "unit/bridge/adapters/slurm/transport/pyslurm/test_client.py",
    "integration/test_plugin_package.py",
    "properties/test_ranges.py",
    "properties/test_crowded_morning.py",
    "integration/test_promises_for_plugins.py",
    "docs/test_code_blocks.py",
    "unit/sim/study/test_verifying.py",
    "fuzz/test_stored.py",
    "unit/sim/test_bad_plugins.py",
    "unit/cpsched/outlook/test_calibration.py",
    "properties/test_nobody_pays.py",
    "unit/sim/test_results.py",
    "unit/sim/test_shell.py",
    "integration/test_crowd.py",
)
"""Files below `tests` that took most, the slowest first: from docs/studies/test-times.md."""


def dealt(files: Sequence[str], processes: int) -> list[int]:
    """The order in which to hand out tests, given the file of each: indices into `files`.

    The slow files are dealt to the processes in turn. Each is at the head of its process's share, its tests together.
    The other tests fill up the shares, in the order in which they were collected.
    """
    hands: list[list[int]] = [[] for _ in range(processes)]
    for turn, slow in enumerate(SLOW):
        hands[turn % processes] += [index for index, file in enumerate(files) if file == slow]
    others = [index for index, file in enumerate(files) if file not in SLOW]
    order: list[int] = []
    for left, hand in zip(range(processes, 0, -1), hands, strict=True):
        share = (len(files) - len(order)) // left  # as xdist divides what is left among the processes that are left
        filled = max(0, share - len(hand))
        order += hand + others[:filled]
        others = others[filled:]
    return order
