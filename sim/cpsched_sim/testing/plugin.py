"""Add the property suite to pytest: `--cpsched-dispatcher my.module:Class`.

The option is repeatable. Without other arguments, only the suite runs. Otherwise, the given tests also run. The suite
is imported only if this option is set.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("cpsched_sim.testing.dispatcher_properties")
SUITE_FILE = Path(__file__).with_name("property_suite.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cpsched-dispatcher`."""
    parser.getgroup("cpsched").addoption(
        "--cpsched-dispatcher",
        action="append",
        default=[],
        metavar="NAME|MODULE:CLASS",
        help="run the property suite, which every dispatcher must pass, on this dispatcher",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest collect the suite."""
    if not config.getoption("cpsched_dispatcher") or str(SUITE_FILE) in config.args:
        return
    sys.path.append(
        str(config.invocation_params.dir)
    )  # like `python -m pytest`, for dispatchers in the working directory
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args.clear()
    config.args.append(str(SUITE_FILE))
