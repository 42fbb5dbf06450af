"""A plug-in of pytest that prints what took most CPU time: `python -m pytest -p tests.cpu_times -n 2 tests`.

CPU time of the test with its fixtures, and of the processes that it started and waited for: unlike `--durations` it is
the same on a busy machine, and leaves out what a test merely waits for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests import warm

SHOWN = 30
_CPU_S = "cpu_s"


def cpu_s() -> float:
    """CPU seconds of this process so far, of its children that have ended, and of commands that others ran for it."""
    return sum(os.times()[:4]) + warm.spent_s


class CpuTimes:
    """Takes the time of each test where it runs, and adds the times up where they are reported."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self.by_test: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._began_s = cpu_s()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":  # what the item says by then goes with the report, from a worker of xdist too
            item.user_properties.append((_CPU_S, cpu_s() - self._began_s))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.by_test[report.nodeid] += sum(value for name, value in report.user_properties if name == _CPU_S)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_file: Counter[str] = Counter()
        for name, spent_s in self.by_test.items():
            by_file[name.partition("::")[0]] += spent_s
        for title, found in (("tests", self.by_test), ("files", by_file)):
            terminalreporter.section(f"{title} that took most CPU time, of {found.total():.0f} s")
            for name, spent_s in found.most_common(SHOWN):
                terminalreporter.line(f"{spent_s:8.1f} s  {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuTimes(), "cpsched-cpu-times")
