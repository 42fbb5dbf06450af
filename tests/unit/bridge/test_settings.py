from pathlib import Path

import pytest
from pydantic import BaseModel

from cpsched_bridge.adapters.mock import Options
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.settings import Settings, load


def written(tmp_path, text):
    path = tmp_path / "bridge.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_is_shadow_mode_beside_slurm(tmp_path):
    settings = load(written(tmp_path, ""))
    assert (settings.mode, settings.adapter, settings.metrics.host) == ("shadow", "slurm", "127.0.0.1")
    assert settings.heartbeat_path == Path("/var/lib/cpsched/heartbeat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: contrl", "mode='contrl': Input should be 'shadow' or 'control'"),
        ("cycle: {interval_s: 0}", "cycle.interval_s=0: Input should be greater than 0"),
        ("cycle: {intervall: 1}", "cycle.intervall=1: no such setting"),
        ("- a\n- b", "must be a mapping of settings, not list"),
        ("mode: [", "not YAML: "),
    ],
)
def test_a_wrong_setting_names_file_field_value_and_rule(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.yaml: No such file or directory"):
        load(tmp_path / "none.yaml")


def sections(model):
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation)


@pytest.mark.parametrize("section", [*sections(Settings), Options], ids=lambda s: s.__name__)
def test_every_setting_has_a_sentence(section):
    for name, field in section.model_fields.items():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        assert is_section or (field.description or "").endswith("."), name
