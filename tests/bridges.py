"""Builds a bridge over any backend with a state directory of the test's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.guard import PauseFile
from bridge.journal import Journal
from bridge.ledger import Ledger
from bridge.loop import Bridge, Listener
from bridge.ports import Backend, Pace
from bridge.records import PolicyRecord
from bridge.settings import Settings
from cpsched.dispatchers.base import Dispatcher
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from tests.fakes import FakePace, FirstFit


def a_bridge(
    state_dir: Path,
    backend: Backend,
    dispatcher: Dispatcher | None = None,
    pace: Pace | None = None,
    listeners: tuple[Listener, ...] = (),
    record: PolicyRecord | None = None,
    policy: Policy | None = None,
    **settings: Any,
) -> Bridge:
    """A bridge in control mode, unless told otherwise, whose files are in `state_dir`."""
    configured = Settings.model_validate({"mode": "control", "state_dir": state_dir, "durable": False, **settings})
    return Bridge(
        backend=backend,
        policy=policy or Policy(WalltimePredictor(), dispatcher or FirstFit()),
        policy_record=record or PolicyRecord("first-fit", "walltime", {}, {}, "one-second"),
        ledger=Ledger(state_dir / "ledger.sqlite", durable=False),
        journal=Journal(state_dir / "journal.sqlite", configured.journal.max_mib),
        pause=PauseFile(state_dir / "paused"),
        pace=pace or FakePace(),
        settings=configured,
        listeners=listeners,
    )
