"""The formats that releases freeze."""

import re

from deploy.version import ROOT
from tests import formats


def test_no_shape_changes_without_its_number():
    """If keys were only added, `make formats` suffices. Otherwise, raise the format's number first."""
    found = {name: each.record for name, each in formats.find_formats().items()}
    assert found == formats.read_record()


def test_page_states_numbers_of_formats():
    page = (ROOT / "docs" / "releasing.md").read_text()
    stated = dict(re.findall(r"^\| `?([\w.]+)`? \| (\d+) \|", page, re.MULTILINE))
    assert stated == {name: record.split()[0] for name, record in formats.read_record().items()}
