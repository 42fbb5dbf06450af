"""Record the signs of life of the other bridge of a cluster, so that a takeover need not wait for the lease.

A message states which bridge process sends it, and whether it can lead. An answer proves that the other bridge received
the message after it was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Self

from cpsched_bridge.ports import Lease

NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """What a bridge reports to the other one about itself."""

    bridge: str = ""
    run: str = ""
    where: str = ""
    can_lead: bool = False
    """Whether the bridge takes over if the other one ends. In shadow mode and while it is paused, it does not."""

    @property
    def owner(self) -> tuple[str, str]:
        """The names of the bridge and the process, as in a lease."""
        return self.bridge, self.run

    def to_text(self) -> bytes:
        """Return the message as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """Return the message. Raise `ValueError` or `TypeError` if the text is malformed."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class PeerLink:
    """The last signs of life of the other bridge. Times are monotonic, in seconds."""

    send: Callable[[PeerMessage], PeerMessage | None] = lambda message: None
    """Sends a message to the other bridge. Returns its answer, or None if there is none."""
    peer: PeerMessage = field(default_factory=PeerMessage)
    """The last message of the other bridge."""
    answered_s: float = NEVER_S
    """Time at which the last message was sent that the other bridge answered."""
    heard_s: float = NEVER_S
    """Time at which the last message was received, or the last answered message was sent."""
    own: PeerMessage = field(default_factory=PeerMessage)
    """This bridge's last message, with which it answers. It is empty while the cycle hangs."""

    def exchange(self, now_s: float, lease: Lease, can_lead: bool) -> None:
        """Send a message, and record the answer."""
        self.own = PeerMessage(lease.bridge, lease.run, lease.where, can_lead)
        answer = self.send(self.own)
        if answer is not None and answer.bridge:
            self.peer, self.answered_s = answer, now_s
            self.heard_s = max(self.heard_s, now_s)

    def receive(self, message: PeerMessage, now_s: float) -> PeerMessage:
        """Record a message of the other bridge, and return the answer."""
        self.peer, self.heard_s = message, now_s
        return self.own
