"""`python -m tests.monitoring.pictures`: take the documentation's pictures of the status page, in Chromium."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import urllib.request
from datetime import datetime
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


def photograph(url: str) -> None:
    """The pages, the wall by night, and the page of a job that waits; and what a phone shows."""
    for name, dark, path, height in (
        ("page", False, "?first=16&last=40", 1750),
        ("page-jobs", False, "jobs?sort=start", 900),
        ("page-nodes", False, "nodes?sort=state", 700),
        ("page-wall", True, "wall", 720),
        ("page-job", False, "job", 700),
        ("page-when", False, "when?time=2:00:00&nodes=4&cores=16", 900),
    ):
        with chromium(1280, height, dark) as driver:
            driver.get(url + (f"jobs/{_waiting(url)}" if path == "job" else path))
            driver.save_screenshot(str(PICTURES / f"{name}.png"))
            print("wrote", PICTURES / f"{name}.png")
    with chromium(500, 844, True) as driver:
        phone = {"width": 390, "height": 1300, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        driver.get(url + "jobs")
        driver.save_screenshot(str(PICTURES / "page-phone.png"))


def _waiting(url: str) -> int:
    """The job that is expected to start last."""
    with urllib.request.urlopen(f"{url}jobs?sort=start", timeout=10) as page:
        return int(re.findall(r'href="[^"]*jobs/(\d+)"', page.read().decode())[-1])


if __name__ == "__main__":
    sys.exit(main())
