"""The Grafana dashboards equal the generator's output, are complete, and use existing metrics."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.unit.deploy.test_alerts import offered

GRAFANA = Path(__file__).resolve().parents[3] / "deploy" / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))


def panels_of(file):
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


PANELS = [pytest.param(file, panel, id=f"{file.stem}/{panel['title']}") for file in FILES for panel in panels_of(file)]


def test_dashboards_match_generator():
    pytest.importorskip("grafana_foundation_sdk")
    spec = importlib.util.spec_from_file_location("build", GRAFANA / "build.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["build"] = module
    spec.loader.exec_module(module)
    for board in module.BOARDS:
        written = (GRAFANA / "dashboards" / f"{board.uid}.json").read_text()
        assert written == module.built(board), "python deploy/grafana/build.py"
    assert len(module.BOARDS) == len(FILES) == 3


@pytest.mark.parametrize(("file", "panel"), PANELS)
def test_every_expression_uses_served_metrics_of_instance(file, panel):
    for target in panel["targets"]:
        expression = target["expr"]
        named = set(re.findall(r"(?:cpsched|process)[_:][\w:]+", expression))
        assert named <= offered(), expression
        assert not re.search(r"rate\([^)]*\[(?!\$__rate_interval)", expression), "a rate over a fixed time"
        if named:
            assert expression.count('instance=~"$instance"') >= len(named)


def test_panels_do_not_overlap():
    for file in FILES:
        taken = set()
        for panel in json.loads(file.read_text())["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert at["x"] + at["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells
