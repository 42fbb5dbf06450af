"""Which mode the bridge is in: as configured, or paused because somebody or the bridge itself said so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cpsched_bridge.report import Mode
from cpsched_bridge.store.instance import PauseFile


@dataclass(slots=True)
class ModeSwitch:
    """The present mode; a pause counts where the bridge writes to the cluster: shadow mode does nothing anyway."""

    configured: Literal["shadow", "advise", "control"]
    pause: PauseFile
    trouble: Callable[[], str | None] = lambda: None
    """Why the bridge must stand down for as long as this says so."""
    rival: Callable[[], str | None] = lambda: None
    """Why it must step back although it works well: another bridge is in control."""
    _told: Mode | None = None
    _unwritten: str = ""
    """Why the bridge stood down, while the disk does not take it."""

    def present(self) -> Mode:
        """The mode of the cycle that begins."""
        if self.configured == "shadow":
            return "shadow"
        return self.configured if self.reason() is None else "paused"

    @property
    def wanted(self) -> bool:
        """Whether the bridge is to be in control, or to advise, unless another one does either."""
        return self.configured != "shadow" and self._own_reason() is None

    def reason(self) -> str | None:
        """Why the bridge stands down; None if it does not."""
        return self._own_reason() or self.rival()

    def _own_reason(self) -> str | None:
        return self._unwritten or self.pause.reason() or self.trouble()

    def changed(self, mode: Mode) -> bool:
        """Whether `mode` differs from what this was asked about before."""
        before, self._told = self._told, mode
        return mode != before

    def stand_down(self, why: str) -> None:
        """Pause from the next cycle on. Raises `OSError` if the disk does not take that; the bridge still pauses."""
        self._unwritten = why
        self.write()

    def write(self) -> None:
        """Write down what the disk did not take before, so that `cpsched resume` finds it; may raise `OSError`."""
        if self._unwritten:
            self.pause.pause(self._unwritten)
            self._unwritten = ""
