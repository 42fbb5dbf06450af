"""`python -m tests.monitoring.pictures`: pictures of the status page and of the dashboards' panels, from a real run.

The page is photographed in Chromium. Panels are drawn by matplotlib from the answers of a real Prometheus to the
panels' own expressions, and marked as such: they are not Grafana's.
"""

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
from tests.monitoring.stack import ALERTMANAGER, PROMETHEUS, ROOT, BridgeProcess, Monitoring, missing, running

PICTURES = ROOT / "docs" / "pictures"
RUN_S = 300
_SPEED = 60
_UNITS = {"s": ", seconds", "percentunit": ", as a share", "ops": ", a second", "short": "", "none": ""}
"""Grafana's units in words."""
PLANS = {
    "policy": {"dispatcher": "lookahead", "predictor": "walltime"},
    "options": SETTINGS["options"] | {"maintenance": [{
        "name": "new kernel", "nodes": [f"node{n}" for n in range(25, 33)], "from_s": RUN_S * _SPEED + 10_800,
        "for_s": 7200}]},
}  # fmt: skip
"""The page shows a dispatcher that plans the whole queue; the dashboards one with a solver."""
PANELS = {
    "cpsched-scheduling": ("Waiting jobs by reason", "Wait", "Mean wait by partition", "In use"),
    "cpsched-decisions": ("Decision time", "A cycle by phase", "Paths", "Considered jobs and variables"),
    "cpsched-predictions": ("Prediction error", "Longer or shorter than predicted", "Late starts", "Early or late"),
}


def main() -> int:
    """Write the pictures."""
    if missed := [*lacks(), *missing(PROMETHEUS, ALERTMANAGER)]:
        print(f"not installed: {', '.join(missed)}")
        return 1
    with tempfile.TemporaryDirectory(prefix="cpsched-pictures-", ignore_cleanup_errors=True) as name:
        bridge = BridgeProcess(Path(name) / "bridge", SETTINGS)
        planning = BridgeProcess(Path(name) / "planning", PLANS)
        watchers = Monitoring(Path(name) / "prometheus", [bridge.target])
        with running(bridge, planning, watchers):
            time.sleep(RUN_S)
            photograph(planning.url)
            for board, titles in PANELS.items():
                draw(board, titles, watchers)
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


def draw(board: str, titles: tuple[str, ...], watchers: Monitoring) -> None:
    """Panels of one dashboard from the past minutes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.dates import DateFormatter

    content = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / f"{board}.json").read_text())
    panels = {panel["title"]: panel for panel in content["panels"]}
    figure, axes = plt.subplots(2, 2, figsize=(12, 6.4), layout="constrained")
    for axis, title in zip(axes.flat, titles, strict=True):
        panel = panels[title]
        for target in panel["targets"]:
            for series in watchers.query_range(_filled(target["expr"]), RUN_S, 5):
                labels = series["metric"]
                words = target["legendFormat"]
                for label, text in labels.items():
                    words = words.replace("{{" + label + "}}", text)
                if not any(float(value) for _, value in series["values"]):
                    continue
                points = [(float(at), float(value)) for at, value in series["values"]]
                axis.plot([datetime.fromtimestamp(at) for at, _ in points], [v for _, v in points], label=words, lw=1.2)
        axis.set_title(title + _UNITS[panel["fieldConfig"]["defaults"]["unit"]], fontsize=10, loc="left")
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_formatter(DateFormatter("%H:%M"))
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7, frameon=False, ncols=2)
    figure.suptitle(f"{content['title']}: four panels, drawn by matplotlib from Prometheus' answers (not by Grafana)")
    figure.savefig(PICTURES / f"{board}.png", dpi=80)
    plt.close(figure)
    print("wrote", PICTURES / f"{board}.png")


def _filled(expression: str) -> str:
    for name, value in (("$__rate_interval", "1m"), ("$instance", ".*"), ("$partition", ".*")):
        expression = expression.replace(name, value)
    return expression


if __name__ == "__main__":
    sys.exit(main())
