"""The lease's reservation, with stand-ins for pyslurm and scontrol: only one bridge at a time can create it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from cpsched.slurm_text.object_parsing import RESERVATIONS_COMMAND, parse_reservations
from cpsched_bridge.adapters.slurm.translation.slurm_reservations import LEASE_RESERVATION_NAME, find_lease_comment
from cpsched_bridge.adapters.slurm.transport.cli import cli_transport
from cpsched_bridge.adapters.slurm.transport.cli.cli_transport import SlurmCliTransport
from cpsched_bridge.errors import BackendUnavailable, CommandRefused

HEAD = "ReservationName={} StartTime=1 EndTime=2 Duration=00:00:01\n   Nodes=n1\n   Users=root Accounts=(null)"


class Cluster:
    """What slurmctld knows of reservations."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.commands: list[str] = []
        self.complaint = ""
        self.first: str | None = None
        """What another bridge claims right before the next command."""
        self.has_comments = True
        """Whether reservations have comments; 22.05 complains as it does here."""

    def query(self, command: Sequence[str]) -> str:
        if command != RESERVATIONS_COMMAND:
            return "n2\nn1\n"
        shown = (f"{HEAD.format(name)} State=INACTIVE\n   Comment={text}\n\n" for name, text in self.words.items())
        return "".join(shown) or "No reservations in the system\n"

    def scontrol(self, command: str) -> str:
        self.commands.append(command)
        if self.first is not None:
            self.words[LEASE_RESERVATION_NAME], self.first = self.first, None
        verb, *settings = command.split(" ")
        facts = dict(word.split("=", 1) for word in settings)
        name = facts["ReservationName"]
        if "Comment" in facts and not self.has_comments:
            return f"scontrol: error: Unknown parameter Comment={facts['Comment']}.  No reservation update."
        if self.complaint or (verb == "create" and name in self.words):
            return self.complaint or "Error creating the reservation: Duplicate reservation name"
        if verb == "delete":
            del self.words[name]
        else:
            self.words[name] = facts["Comment" if self.has_comments else "BurstBuffer"]
        return ""


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def ours(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCliTransport:
    runner = SimpleNamespace(run=lambda command, deadline_s: SimpleNamespace(output=cluster.query(command)))
    monkeypatch.setattr(cli_transport, "make_slurm_runner", lambda budget: runner)
    monkeypatch.setattr(cli_transport, "send_and_read_error", lambda session, command: cluster.scontrol(command))
    return SlurmCliTransport()


def test_acquires_and_renews_lease(cluster: Cluster, ours: SlurmCliTransport) -> None:
    cluster.words["maintenance"] = "theirs"
    assert ours.acquire_lease("a&1", None)
    assert ours.acquire_lease("a&2", "a&1")
    assert cluster.words == {"maintenance": "theirs", LEASE_RESERVATION_NAME: "a&2"}
    created = cluster.commands[0].split(" ")
    assert {"StartTime=now+3650days", "Duration=1", "Nodes=n1"} <= set(created), "it keeps no job from any node"


@pytest.mark.parametrize("expected", [None, "a&1"])
def test_does_not_overwrite_lease_of_another_bridge(
    cluster: Cluster, ours: SlurmCliTransport, expected: str | None
) -> None:
    cluster.words[LEASE_RESERVATION_NAME] = "b&7"
    assert not ours.acquire_lease("a&2", expected)
    assert (cluster.words, cluster.commands) == ({LEASE_RESERVATION_NAME: "b&7"}, [])


def test_only_one_of_two_simultaneous_acquires_succeeds(cluster: Cluster, ours: SlurmCliTransport) -> None:
    cluster.first = "b&1"
    assert not ours.acquire_lease("a&1", None)
    assert cluster.words == {LEASE_RESERVATION_NAME: "b&1"}


def test_reports_refusal_of_cluster(cluster: Cluster, ours: SlurmCliTransport) -> None:
    cluster.complaint = "Error creating the reservation: Access/permission denied"
    with pytest.raises(CommandRefused, match="permission denied"):
        ours.acquire_lease("a&1", None)
    cluster.complaint, cluster.words = (
        "slurm_update error: Unable to contact slurm controller",
        {LEASE_RESERVATION_NAME: "a"},
    )
    with pytest.raises(BackendUnavailable, match="Unable to contact"):
        ours.acquire_lease("b", "a")


def test_stores_lease_in_burst_buffer_without_comments(cluster: Cluster, ours: SlurmCliTransport) -> None:
    cluster.has_comments = False
    assert ours.acquire_lease("a&1", None)
    assert ours.acquire_lease("a&2", "a&1")
    assert cluster.words == {LEASE_RESERVATION_NAME: "a&2"}
    printed = HEAD.format(LEASE_RESERVATION_NAME) + " "
    shown = parse_reservations(f"{printed}State=INACTIVE BurstBuffer=a&2 Watts=n/a\n\n")
    assert find_lease_comment(shown) == "a&2"
    assert (
        find_lease_comment(parse_reservations(f"{printed}State=INACTIVE BurstBuffer=b&9\n   Comment=a&3\n\n")) == "a&3"
    )
