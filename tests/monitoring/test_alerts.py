"""Check rules and alerts with Prometheus's own unit tests, and with real bridges that have real faults."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.monitoring.conftest import TIMES_FASTER, Stage
from tests.monitoring.stack import DEPLOY, faster, missing, until

HERE = Path(__file__).parent
SLACK_S = 60.0
"""For scrapes, evaluations, the way to Alertmanager, and a machine that others use too."""


def alerts():
    return [rule for group in yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


@pytest.mark.skipif(bool(missing("promtool")), reason="promtool is not installed (make monitoring-packages)")
def test_promtool_accepts_rules_and_tests_of_every_alert():
    for words in (
        ["check", "config", str(DEPLOY / "prometheus.yml")],
        ["check", "rules", "--lint=all", "--lint-fatal", str(DEPLOY / "rules.yaml"), str(DEPLOY / "alerts.yaml")],
        ["test", "rules", str(HERE / "alerts_test.yaml")],
    ):
        ended = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.skipif(bool(missing("amtool")), reason="amtool is not installed (make monitoring-packages)")
def test_amtool_accepts_configuration():
    subprocess.run(["amtool", "check-config", str(DEPLOY / "alertmanager.yml")], check=True, capture_output=True)


def test_shortens_only_durations():
    text = 'expr: rate(x[10m]) > 0.05 and time() - y{a="b"} > 60 and z > 7 * 86400 offset 1d\n        for: 1m'
    assert faster(text, 10) == (
        'expr: rate(x[60s]) > 0.05 and time() - y{a="b"} > 6 and z > 7 * 86400 offset 8640s\n        for: 6s'
    )


# The faults begin one after the other, in this order; a bridge that is well runs beside them all the time.


def test_refused_starts_fire_alert(stage: Stage):
    assert stage.first_told("refused", (600 + 300) / TIMES_FASTER + SLACK_S) == {"CpschedStartRollbacks"}


def test_hung_cluster_fires_alert(stage: Stage):
    assert stage.monitoring.told(stage.bridges["hung"].target) == set()
    stage.hang()
    assert stage.first_told("hung", 60 / TIMES_FASTER + SLACK_S) == {"CpschedNoGoodCycle"}


def test_killed_bridge_fires_alert(stage: Stage):
    assert stage.monitoring.told(stage.bridges["killed"].target) == set()
    stage.kill()
    assert stage.first_told("killed", 60 / TIMES_FASTER + SLACK_S) == {"CpschedDown"}


def test_solver_at_limit_fires_alert(stage: Stage):
    # Kernels may have to be compiled in the first cycle, which may delay the first good cycle past an alert.
    target = stage.bridges["limited"].target
    until(lambda: "CpschedLimitHits" in stage.monitoring.told(target), (900 + 1800) / TIMES_FASTER + SLACK_S)
    assert stage.monitoring.told(target) == {"CpschedLimitHits"}


def test_healthy_bridge_fires_no_alert(stage: Stage):
    ran_s = time.monotonic() - stage.began_s
    time.sleep(max(0.0, 60.0 - ran_s))
    assert stage.monitoring.told(stage.bridges["well"].target) == set()
    firing = f'ALERTS{{alertstate="firing", instance="{stage.bridges["well"].target}"}}'
    fired = stage.monitoring.query(f"count by (alertname) (last_over_time({firing}[10m]))")
    assert [each["metric"]["alertname"] for each in fired] == []


def test_promtool_accepts_live_scrape(stage: Stage):
    import urllib.request

    text = urllib.request.urlopen(stage.bridges["well"].url + "metrics").read()
    ended = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
