"""The table of supported releases and limits agrees with the recorded conformance runs and the code."""

import json
import re

from cpsched.slurm_text.limits import LIMIT_FIELDS, UNMODELLED_LIMITS
from tests.docs.test_code_blocks import ROOT

PAGE = (ROOT / "docs" / "supported-settings.md").read_text()


def test_each_conformance_run_is_one_row():
    runs = [json.loads(path.read_text()) for path in sorted((ROOT / "docs" / "releases").glob("*.json"))]
    rows = re.findall(r"^\| ([\d.]+) \| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    counts = [(run["passed"], len(run["failed"]), len(run["skipped"])) for run in runs]
    recorded = {(run["slurm"], run["transport"], *map(str, row)) for run, row in zip(runs, counts, strict=True)}
    assert set(rows) == recorded


def test_each_limit_is_listed_with_its_treatment():
    rows = re.findall(r"^\| (.*) \| .* \| (enforced|not modelled: .*) \|$", PAGE, re.MULTILINE)
    found = {treatment[:3]: set() for _, treatment in rows}
    for names, treatment in rows:
        found[treatment[:3]] |= set(re.findall(r"`(\w+)`", names))
    assert {LIMIT_FIELDS[name] for name in found["enf"]} == set(LIMIT_FIELDS.values())
    assert found["not"] <= set(UNMODELLED_LIMITS)
