"""`python -m tests.monitoring.pictures`: take the documentation's pictures of the status page, in Chromium."""

from __future__ import annotations

import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.monitoring.browser import chromium, lacks
from tests.monitoring.demo import SETTINGS
from tests.monitoring.stack import ROOT, BridgeProcess, running

PICTURES = ROOT / "docs" / "pictures"
RUN_S = 300
_SPEED = 60
PLANS = {
    "policy": {"dispatcher": "lookahead", "predictor": "walltime"},
    "options": SETTINGS["options"] | {"maintenance": [{
        "name": "new kernel", "nodes": [f"node{n}" for n in range(25, 33)], "from_s": RUN_S * _SPEED + 10_800,
        "for_s": 7200}]},
}  # fmt: skip
"""A dispatcher that plans the whole queue, three hours before a maintenance."""


def main() -> int:
    """Write the pictures."""
    if missed := lacks():
        print(f"not installed: {', '.join(missed)}")
        return 1
    with tempfile.TemporaryDirectory(prefix="cpsched-pictures-", ignore_cleanup_errors=True) as name:
        bridge = BridgeProcess(Path(name) / "bridge", PLANS)
        with running(bridge):
            time.sleep(RUN_S)
            take_picture("page", f"{bridge.url}?first=16&last=40", 1750)
            take_picture("page-job", f"{bridge.url}jobs/{_last_waiting(bridge.url)}", 700)
    return 0


def take_picture(name: str, url: str, height: int) -> None:
    """Write the page at `url` as a picture."""
    with chromium(1280, height, False) as driver:
        driver.get(url)
        driver.save_screenshot(str(PICTURES / f"{name}.png"))
    print("wrote", PICTURES / f"{name}.png")


def _last_waiting(url: str) -> int:
    """Return the job that is expected to start last."""
    with urllib.request.urlopen(f"{url}jobs?sort=start", timeout=10) as page:
        return int(re.findall(r'href="[^"]*jobs/(\d+)"', page.read().decode())[-1])


if __name__ == "__main__":
    sys.exit(main())
