"""Prometheus alert rules under deploy/: they speak of metrics that the bridge has."""

import re
from pathlib import Path

import yaml
from prometheus_client import generate_latest

from cpsched_bridge.watch.exporter import Exporter

ALERTS = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "alerts.yaml"


def test_every_metric_in_an_alert_exists() -> None:
    offered = generate_latest(Exporter().registry).decode()
    known = set(re.findall(r"^# TYPE (\S+)", offered, re.MULTILINE))
    known |= {f"{name}{suffix}" for name in known for suffix in ("_sum", "_count", "_bucket")}
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert rules
    for rule in rules:
        named = set(re.findall(r"cpsched_\w+", rule["expr"]))
        assert named <= known, rule["alert"]
        assert named or "up{" in rule["expr"]


def test_every_alert_says_what_it_means() -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["labels"]["severity"] in ("warning", "critical")
