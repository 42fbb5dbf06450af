"""The settings files in deploy/ can be loaded, and the example contains the defaults."""

from pathlib import Path

import pytest

from cpsched_bridge.adapters.pbs import Options
from cpsched_bridge.settings import Settings, load_settings
from deploy import examples

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
EXAMPLE = DEPLOY / "bridge.example.yaml"


def test_example_equals_defaults() -> None:
    assert load_settings(EXAMPLE) == Settings()


def test_cluster_settings_load() -> None:
    assert load_settings(DEPLOY / "bridge" / "bridge.yaml").mode == "control"


def test_pbs_example_loads() -> None:
    settings = load_settings(DEPLOY / "bridge.pbs.example.yaml")
    assert (settings.mode, settings.adapter) == ("shadow", "pbs")
    Options(**settings.options)


@pytest.mark.parametrize("path", examples.FILES, ids=lambda path: path.name)
def test_example_files_match_models(path):
    assert path.read_text() == examples.FILES[path](), "make example-settings writes it"
