"""What is known of users: their groups on a host that may not know them, and the AdminLevel of the bridge's user."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cpsched_bridge.adapters.slurm.transport.programs import slurm_programs, user_queries
from cpsched_bridge.adapters.slurm.transport.programs.user_queries import (
    CACHE_S,
    MAX_QUERY_TIME_S,
    CachingUnixGroupLookup,
    query_admin_level,
)


@dataclass
class Host:
    """Knows the groups of users by id; each question takes `takes_s`."""

    members: dict[str, frozenset[int]]
    takes_s: float = 0.0
    now_s: float = 1000.0
    asked: list[str] = field(default_factory=list)

    def groups_of(self, user: str) -> frozenset[int] | None:
        self.asked.append(user)
        self.now_s += self.takes_s
        return self.members.get(user)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host({"alice": frozenset({1, 2}), "bob": frozenset({3})})
    monkeypatch.setattr(user_queries, "get_group_ids_of_user", found.groups_of)
    monkeypatch.setattr(user_queries, "get_group_id", {"staff": 2, "students": 3}.get)
    return found


def test_omits_users_and_groups_unknown_to_host(host: Host) -> None:
    found = CachingUnixGroupLookup(lambda: host.now_s).find_nonmember_groups(
        ["alice", "bob", "eve"], ["staff", "students", "nobody knows"]
    )
    assert found == {"alice": ["students"], "bob": ["staff"]}


def test_caches_answers_for_requested_users_only(host: Host) -> None:
    groups = CachingUnixGroupLookup(lambda: host.now_s)
    for _ in range(3):
        groups.find_nonmember_groups(["alice"], ["staff"])
    assert host.asked == ["alice"]
    host.now_s += CACHE_S
    host.members["alice"] = frozenset()
    assert groups.find_nonmember_groups(["alice"], ["staff"]) == {"alice": ["staff"]}
    groups.find_nonmember_groups([], ["staff"])
    groups.find_nonmember_groups(["alice"], ["staff"])
    assert host.asked == ["alice"] * 3


def test_slow_host_is_queried_for_some_users_per_reading(host: Host) -> None:
    """A user without an answer in time is unknown in that reading; an old answer is better than none."""
    groups = CachingUnixGroupLookup(lambda: host.now_s)
    host.takes_s = MAX_QUERY_TIME_S
    assert set(groups.find_nonmember_groups(["alice", "bob"], ["staff"])) == {"alice"}
    assert set(groups.find_nonmember_groups(["alice", "bob"], ["staff"])) == {"alice", "bob"}
    host.now_s += CACHE_S
    host.members = {}
    assert set(groups.find_nonmember_groups(["alice", "bob"], ["staff"])) == {"bob"}, "alice's answer was the oldest"


def test_reads_groups_of_this_host() -> None:
    me = pwd.getpwuid(os.getuid())
    mine = grp.getgrgid(me.pw_gid).gr_name
    assert CachingUnixGroupLookup().find_nonmember_groups([me.pw_name, "no such user"], [mine, "no such group"]) == {
        me.pw_name: []
    }


KEPT = """Current Association Manager state

User Records

UserName=cpsched(2100) DefAccount=root DefWckey= AdminLevel=Operator
"""


def put(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("sacctmgr", "scontrol", "expected"),
    [
        ("echo 'Administrator'", "exit 1", {"admin_level": "Administrator", "accounting_answers": True}),
        ("echo 'None'", "exit 1", {"admin_level": "None", "accounting_answers": True}),
        ("echo ''", "exit 1", {"admin_level": "", "accounting_answers": True}),
        ("exit 1", f"cat <<EOF\n{KEPT}EOF", {"admin_level": "Operator", "accounting_answers": False}),
        ("sleep 30", f"cat <<EOF\n{KEPT}EOF", {"admin_level": "Operator", "accounting_answers": False}),
        ("exit 1", "exit 1", {"admin_level": None, "accounting_answers": False}),
    ],
)
def test_asks_database_for_admin_level_and_then_controller(
    programs: Path, monkeypatch: pytest.MonkeyPatch, sacctmgr: str, scontrol: str, expected: dict[str, object]
) -> None:
    monkeypatch.setattr(slurm_programs.run_and_read_output, "__defaults__", (5.0,))  # the other one answers by then
    put(programs, "sacctmgr", sacctmgr)
    put(programs, "scontrol", scontrol)
    assert query_admin_level("cpsched") == expected
