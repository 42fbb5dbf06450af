"""Who may use a partition, including unknown cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cpsched.slurm_text.configuration import SlurmConfig
from cpsched.slurm_text.jobs import SlurmJob
from cpsched_bridge.adapters.slurm.translation.slurm_partitions import (
    PartitionAccessContext,
    PartitionRules,
    find_access_denied_reason,
    find_account_check_rules,
)
from tests.builders import a_slurm_job, words

RECORD = a_slurm_job(user_name="alice", user_id=2001, account="optics", qos="normal")
TREE = {"root": "", "science": "root", "optics": "science", "arts": "root"}
DOORS = PartitionAccessContext(True, True, TREE, {"alice": ["staff", "wheel"], "bob": []})


def why(access_context: PartitionAccessContext = DOORS, record: SlurmJob = RECORD, **partition: Any) -> str | None:
    lists = {name: frozenset(names) for name, names in partition.items()}
    whole = PartitionRules("main", "UP", np.ones(1, np.bool_), None, None, None, 0, False, None, **lists)
    return words(find_access_denied_reason(record, whole, access_context))


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        ({}, None),
        ({"allowed_qos": ["fast", "normal"]}, None),
        ({"allowed_qos": ["fast"]}, "QOSNotAllowed: partition main allows QOS fast, not normal"),
        ({"allowed_qos": []}, "QOSNotAllowed: partition main allows QOS none, not normal"),
        ({"denied_qos": ["fast"]}, None),
        ({"denied_qos": ["fast", "normal"]}, "QOSNotAllowed: partition main denies QOS normal"),
        ({"allowed_qos": ["normal"], "denied_qos": ["normal"]}, None),
        ({"allowed_accounts": ["optics"]}, None),
        ({"allowed_accounts": ["arts"]}, "AccountNotAllowed: partition main allows accounts arts, not optics"),
        ({"denied_accounts": ["arts"]}, None),
        ({"denied_accounts": ["optics"]}, "AccountNotAllowed: partition main denies account optics"),
        ({"allowed_accounts": ["optics"], "denied_accounts": ["optics"]}, None),
        ({"allowed_groups": ["staff"]}, "AccountNotAllowed: partition main allows groups staff, not user alice"),
        ({"allowed_groups": ["staff", "students"]}, None),
    ],
)  # fmt: skip
def test_applies_allow_and_deny_lists(lists: dict[str, list[str]], reason: str | None) -> None:
    """Allow lists precede deny lists; an unknown group allows every user."""
    assert why(**lists) == reason


NO_CHILDREN = replace(DOORS, includes_child_accounts=False)
NO_TREE = PartitionAccessContext(True, True, None)
LOOP = replace(DOORS, above={"optics": "science", "science": "optics"})
UPPER = RECORD._replace(account="Optics", qos="Normal")
NOT_ARTS = "AccountNotAllowed: partition main allows accounts arts, not optics"


@pytest.mark.parametrize(
    ("context", "record", "lists", "reason"),
    [
        # An account in a list includes its children, since 23.02.
        (DOORS, RECORD, {"allowed_accounts": ["science"]}, None),
        (DOORS, RECORD, {"allowed_accounts": ["root"]}, None),
        (DOORS, RECORD, {"denied_accounts": ["science"]}, "AccountNotAllowed: partition main denies account science"),
        (NO_CHILDREN, RECORD, {"allowed_accounts": ["science"]},
         "AccountNotAllowed: partition main allows accounts science, not optics"),
        (NO_CHILDREN, RECORD, {"denied_accounts": ["science"]}, None),
        # A listed account is denied without a tree. A loop in the tree ends.
        (NO_TREE, RECORD, {"denied_accounts": ["optics"]}, "AccountNotAllowed: partition main denies account optics"),
        (LOOP, RECORD, {"allowed_accounts": ["arts"]}, NOT_ARTS),
        # A user who is not known to be outside a group may be in it.
        (DOORS, RECORD._replace(user_name="bob"), {"allowed_groups": ["staff"]}, None),
        # Case is ignored, and long lists are truncated.
        (DOORS, UPPER, {"allowed_qos": ["normal"], "allowed_accounts": ["optics"]}, None),
        (DOORS, UPPER, {"denied_qos": ["normal"]}, "QOSNotAllowed: partition main denies QOS Normal"),
        (DOORS, UPPER, {"denied_accounts": ["optics"]}, "AccountNotAllowed: partition main denies account optics"),
        (DOORS, RECORD, {"allowed_qos": [f"q{number}" for number in range(9)]},
         "QOSNotAllowed: partition main allows QOS q0, q1, q2, q3, q4 and 4 more, not normal"),
    ],
)  # fmt: skip
def test_finds_reason_why_access_is_denied(
    context: PartitionAccessContext, record: SlurmJob, lists: dict[str, list[str]], reason: str | None
) -> None:
    assert why(context, record, **lists) == reason


@pytest.mark.parametrize(
    ("access_context", "record"),
    [
        (PartitionAccessContext(None, True, TREE), RECORD),
        (PartitionAccessContext(False, True, TREE), RECORD),
        (PartitionAccessContext(True, True, None), RECORD),
        (PartitionAccessContext(True, True, {"arts": ""}), RECORD),
        (PartitionAccessContext(True, True, {}), RECORD._replace(account="")),
    ],
)
def test_admits_unknown_account(access_context: PartitionAccessContext, record: SlurmJob) -> None:
    """Slurm's answer to a start decides then."""
    assert why(access_context, record, allowed_accounts=["arts"]) is None


@pytest.mark.parametrize(
    "record",
    [RECORD._replace(user_name="eve"), RECORD._replace(user_id=0), RECORD._replace(user_name="")],
)
def test_admits_users_of_unknown_groups_and_root(record: SlurmJob) -> None:
    assert why(record=record, allowed_groups=["staff"]) is None
    assert why(PartitionAccessContext(outside={"None": ["staff"]}), record, allowed_groups=["staff"]) is None


def test_escapes_control_characters() -> None:
    assert "\x1b" not in str(why(record=RECORD._replace(qos="\x1b[2J"), allowed_qos=["fast"]))


@pytest.mark.parametrize(
    ("version", "enforced", "expected"),
    [
        ("26.05.5", ["associations", "limits"], (True, True)),
        ("23.02.0", ["limits"], (True, True)),
        ("26.05.5", ["none"], (False, True)),
        ("26.05.5", [], (False, True)),
        ("26.05.5", ["associations", "qos"], (True, True)),
        ("22.05.8", ["none"], (True, False)),
        ("22.05.8", None, (True, False)),
        ("26.05.5", None, (None, True)),
        (None, ["associations"], (None, True)),
        ("unknown", ["associations"], (None, True)),
        ("26", ["associations"], (None, True)),
        ("x.5.1", ["associations"], (None, True)),
        ("26.x.1", ["associations"], (None, True)),
    ],
)
def test_reads_whether_controller_checks_accounts(
    version: object, enforced: object, expected: tuple[object, bool]
) -> None:
    assert find_account_check_rules(SlurmConfig(version=version, accounting_storage_enforce=enforced)) == expected
