"""Rules and alerts in deploy/prometheus: they use existing metrics, and each alert has a runbook."""

import re
from pathlib import Path

import pytest
import yaml

from cpsched_bridge.telemetry.prometheus_exporter import PrometheusExporter

ROOT = Path(__file__).resolve().parents[3]
RULES, ALERTS = (ROOT / "deploy" / "prometheus" / name for name in ("rules.yaml", "alerts.yaml"))


def rules_of(path):
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def names_of_alerts():
    return [rule["alert"] for rule in rules_of(ALERTS)]


def offered():
    """The names of all series that a bridge serves, and of those that are recorded."""
    known = set(re.findall(r"^# TYPE (\S+)", PrometheusExporter().render_metrics().decode(), re.MULTILINE))
    known |= {f"{name}{suffix}" for name in known for suffix in ("_sum", "_count", "_bucket")}
    return known | {rule["record"] for rule in rules_of(RULES)}


@pytest.mark.parametrize("rule", [*rules_of(RULES), *rules_of(ALERTS)], ids=lambda rule: rule.get("alert", "rule"))
def test_every_metric_in_rule_exists(rule):
    named = set(re.findall(r"(?:cpsched|process)[_:][\w:]+", rule["expr"]))
    assert named <= offered()
    assert named or "up{" in rule["expr"]


@pytest.mark.parametrize("rule", rules_of(ALERTS), ids=lambda rule: rule["alert"])
def test_every_alert_has_severity_text_and_runbook(rule):
    texts = rule["annotations"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert (texts["summary"][-1], texts["description"][-1]) == (".", ".")
    assert texts["runbook_url"].endswith(f"/OPERATE.md#{rule['alert'].lower()}")


def test_alerts_and_runbooks_correspond_with_severity():
    page = (ROOT / "docs" / "operate.md").read_text()
    rows = re.findall(r'^\| <a id="(\w+)"></a>(\w+), (\w+) \| [^|]+ \| [^|]+ \|$', page, re.MULTILINE)
    assert len(rows) == page.count("<a id=")
    assert rows == [(rule["alert"].lower(), rule["alert"], rule["labels"]["severity"]) for rule in rules_of(ALERTS)]


def test_every_alert_has_firing_test():
    tests = yaml.safe_load((ROOT / "tests" / "monitoring" / "alerts_test.yaml").read_text())["tests"]
    fired = {
        label
        for test in tests
        for check in test["promql_expr_test"]
        for sample in check.get("exp_samples", ())
        for label in re.findall(r'"(\w+)"', sample["labels"])
    }
    assert fired == set(names_of_alerts())


def test_alertmanager_names_existing_alerts():
    text = (ROOT / "deploy" / "prometheus" / "alertmanager.yml").read_text()
    assert set(re.findall(r"Cpsched\w+", text)) <= set(names_of_alerts())
