"""The settings files under deploy/: they load, and the example leaves nothing out and changes nothing."""

import itertools
from pathlib import Path

import yaml

from cpsched_bridge.adapters.pbs import Options
from cpsched_bridge.settings import Section, Settings, load

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
EXAMPLE = DEPLOY / "bridge.example.yaml"


def test_the_example_is_the_defaults() -> None:
    assert load(EXAMPLE) == Settings()


def test_the_example_names_every_setting() -> None:
    content = yaml.safe_load(EXAMPLE.read_text())
    assert list(content) == list(Settings.model_fields)
    for name, value in Settings():
        if isinstance(value, Section):
            assert list(content[name]) == list(type(value).model_fields), name


def test_each_setting_has_a_sentence_above_it() -> None:
    lines = EXAMPLE.read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        if ":" in line and not line.lstrip().startswith("#") and not line.split(":", 1)[1].strip().startswith("#"):
            assert before.strip().startswith("# "), line


def test_the_test_clusters_settings_load() -> None:
    assert load(DEPLOY / "bridge" / "bridge.yaml").mode == "control"


def test_the_example_for_pbs_loads_and_names_every_option_of_the_adapter() -> None:
    settings = load(DEPLOY / "bridge.pbs.example.yaml")
    assert (settings.mode, settings.adapter) == ("shadow", "pbs")
    assert list(settings.options) == list(Options.model_fields)
    Options(**settings.options)
