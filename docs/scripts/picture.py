"""`python -m docs.scripts.picture`: write the demo's live view as SVG, from a real run of the bridge with default
settings.

`make picture` runs this module. Each run produces a different picture, so no test compares it.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from cpsched_bridge.adapters.mock.simulated_clocks import EventDrivenClock
from cpsched_bridge.cycle_report import CycleReport
from cpsched_bridge.program.demo import DemoLiveView, make_bridge_and_twin_sites, make_demo_policy, run_demo_bridge
from cpsched_bridge.settings import PolicySettings
from cpsched_bridge.telemetry import bridge_log

TARGET = Path(__file__).resolve().parents[1] / "pictures" / "demo.svg"
JOBS, SEED, WIDTH, HEIGHT, MANY = 2000, 1, 80, 20, 100
WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""The web font that Rich would load from another host."""


class Photographer:
    """A recorder of the last cycle with starts in which at least `MANY` jobs waited."""

    def __init__(self, view: DemoLiveView) -> None:
        self.view = view
        self.svg = ""

    def __call__(self, report: CycleReport) -> None:
        """Record a cycle after the view has processed it."""
        if not report.decided.starts or len(report.decided.waiting) < MANY:
            return
        out = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        out.print(self.view.render((WIDTH, HEIGHT)))
        self.svg = WEB_FONT.sub("", out.export_svg(title="cpsched demo", theme=MONOKAI, unique_id="demo"))


def main() -> None:
    """Run the demo and write the picture."""
    bridge_log.configure_logging("text", level=40)
    site, twin = make_bridge_and_twin_sites(JOBS, SEED)
    policy = make_demo_policy(PolicySettings().dispatcher, 0.02)
    view = DemoLiveView(policy.dispatcher, site, twin, "http://127.0.0.1:9764/")
    photographer = Photographer(view)
    run_demo_bridge(policy, site, EventDrivenClock(site), (view, photographer))
    TARGET.write_text(photographer.svg, encoding="utf-8")
    print("wrote", TARGET)


if __name__ == "__main__":
    main()
