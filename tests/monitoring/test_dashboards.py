"""Evaluate every expression in panels, rules and alerts on a Prometheus that has scraped bridges for minutes."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.monitoring.conftest import Stage
from tests.monitoring.stack import DEPLOY, ROOT

MAY_BE_EMPTY = {
    "histogram_quantile": "no job started or ended in the past minute",
    "cpsched:prediction_error_log2:mean1h": "fewer than 20 ended jobs in an hour",
    "cpsched:late_starts:ratio6h": "fewer than 20 starts with an expected start",
    "cpsched:held_intervals:ratio1d": "fewer than 50 intervals",
    "cpsched_boost_order_ratio": "no bridge here advises",
    "> 0)": "a mean over nothing",
}
"""Part of an expression -> why it may have no data."""


def substituted(expression: str, instance: str) -> str:
    """The expression as Grafana sends it."""
    for name, value in (("$__rate_interval", "4m"), ("$instance", instance), ("$partition", ".*")):
        expression = expression.replace(name, value)
    return expression


def panels():
    for file in sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            yield f"{file.stem}/{panel['title']}", panel, [target["expr"] for target in panel.get("targets", ())]


EXPRESSIONS = [pytest.param(each, id=name) for name, _, expressions in panels() for each in expressions]
FIGURES = [pytest.param(expressions, id=name) for name, panel, expressions in panels() if panel["type"] == "stat"]


def rules():
    for name in ("rules.yaml", "alerts.yaml"):
        for group in yaml.safe_load((DEPLOY / name).read_text())["groups"]:
            for rule in group["rules"]:
                yield pytest.param(rule, id=rule.get("record") or rule["alert"])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_panel_has_data(stage: Stage, expression: str):
    bridges = [stage.bridges[name].target for name in ("well", "limited", "refused")]
    found = stage.monitoring.query(substituted(expression, "|".join(bridges)))
    assert found or any(part in expression for part in MAY_BE_EMPTY)
    assert not [each for each in found if each["value"][1] in ("NaN", "+Inf", "-Inf")] or "histogram" in expression


@pytest.mark.parametrize("expressions", FIGURES)
def test_each_figure_is_one_number_per_bridge(stage: Stage, expressions: list[str]):
    """`x or vector(0)` would be two where x has labels."""
    target = stage.bridges["refused"].target
    assert sum(len(stage.monitoring.query(substituted(each, target))) for each in expressions) == 1


@pytest.mark.parametrize("rule", list(rules()))
def test_each_rule_is_evaluated(stage: Stage, rule: dict[str, str]):
    found = stage.monitoring.query(rule["expr"])
    recorded = "record" in rule and not any(part == rule["record"] for part in MAY_BE_EMPTY)
    assert found or not recorded, "a recorded rule has data; an alert that does not fire has none"
