from pathlib import Path

import pytest
from pydantic import BaseModel

from cpsched.model import PowerCap
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.bootstrap import load_adapter
from cpsched_bridge.settings import (
    AdviseModeSettings,
    CycleSettings,
    Settings,
    load_settings,
)
from cpsched_sim.whatif.whatif_cases import INTERVAL, SIMULATED_MODES


def written(tmp_path, text):
    path = tmp_path / "bridge.yaml"
    path.write_text(text)
    return path


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))])


def test_defaults_are_shadow_mode_and_slurm(tmp_path):
    settings = load_settings(written(tmp_path, "adapter: slurm"))
    assert (settings.mode, settings.adapter, settings.metrics.host) == ("shadow", "slurm", "127.0.0.1")
    assert settings.heartbeat_path == Path("/var/lib/cpsched/heartbeat")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "~"])
def test_rejects_empty_file(tmp_path, text):
    with pytest.raises(SettingsError, match=r":1: file: empty: must contain at least `adapter: slurm`"):
        load_settings(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: contrl", "1: mode: contrl: must be 'shadow', 'advise' or 'control'"),
        ("mode: shadow\ncycle: {interval_s: 0}", "2: cycle.interval_s: 0: must be above 0"),
        ("cycle:\n  intervall_s: 1", "2: cycle.intervall_s: 1: no such setting; did you mean 'interval_s'?"),
        ("interval_s: 1", "1: interval_s: 1: no such setting; did you mean 'cycle.interval_s'?"),
        (
            "cycle:\n  intervall_s: 1\nmetrics:\n  port: 99999",
            "2: cycle.intervall_s: 1: no such setting; did you mean 'interval_s'?; "
            "also wrong: line 4: metrics.port: 99999: must be at most 65535",
        ),
        ("cycle:\n  interval_s: .inf", "2: cycle.interval_s: inf: must be a finite number"),
        ("lease:\n  duration_s: 1.0e+30", "2: lease.duration_s: 1e+30: must be within 1,000,000,000"),
        (
            "mode: x\non_stop: y",
            "1: mode: x: must be 'shadow', 'advise' or 'control'; also wrong: line 2: on_stop: y: must",
        ),
        ("- a\n- b", "1: file: a list: must be a mapping of settings"),
        ("mode: [", "1: yaml: mode: [: must be YAML: "),
        ("mode: shadow\nmode: control", "2: mode: given twice: must occur only once"),
        ("start: {adopt: true, adopt: false}", "1: adopt: given twice: must occur only once"),
        ("mode: !!str shadow", "1: yaml: tag:yaml.org,2002:str: must be removed: tags are not supported"),
        ("durable: true\nmode: a\x01b", "2: yaml: '\\x01': must not contain control characters"),
        ('mode: "\\ud800"', "1: text: \\ud800: must not contain control characters"),
        ("max: " + "9" * 5000, "1: number: 9999"),
        ("max: 9223372036854775808", "1: number: 9223372036854775808: must be within 64 bits"),
        ("max: 0b_", "1: number: 0b_: must be a number"),
        ("a: " + "[" * 40, "1: yaml: nesting: must not be nested deeper than 30"),
        ("a: [" + "x, " * 10_001 + "]", "1: yaml: values: must be at most 10,000"),
        (BOMB, "1: yaml: aliases: must not expand to more than 10,000 values"),
        ("a: &a [*a, *a]", "1: yaml: aliases: must not expand to more than 10,000 values, or contain themselves"),
        ("? [a, b]\n: 1", "1: yaml: a list or mapping: must not be a key"),
        ("a: 1\n---\nb: 2", "2: yaml: ---: must be YAML: but found another document"),
        ("# " + "x" * 300_000, "1: file: bridge.yaml: must not be larger than 131,072 bytes"),
    ],
)
def test_invalid_setting_names_file_line_field_value_and_rule(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(f"{path}:{message}")
    assert str(caught.value).isprintable()


def test_reads_ordinary_anchor(tmp_path):
    text = "policy: {dispatcher_settings: &none {}, predictor_settings: *none}"
    assert load_settings(written(tmp_path, text)).policy.predictor_settings == {}


def test_rejects_other_encodings_but_allows_byte_order_mark(tmp_path):
    path = tmp_path / "bridge.yaml"
    path.write_bytes(b"mode: shadow\non_stop: ke\xe9p\n")
    with pytest.raises(SettingsError, match=r":2: file: byte 0xe9: must be UTF-8 text"):
        load_settings(path)
    path.write_bytes("mode: shadow\r\nadapter: mock\r\n".encode("utf-8-sig"))
    assert load_settings(path).adapter == "mock"


def test_names_missing_file(tmp_path):
    with pytest.raises(SettingsError, match=r"none\.yaml: No such file or directory"):
        load_settings(tmp_path / "none.yaml")


def sections(model):
    yield model
    for field in model.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from sections(field.annotation)


MODELS = (Settings, *(load_adapter(name).Options for name in ("mock", "pbs", "slurm")))


@pytest.mark.parametrize("section", [part for model in MODELS for part in sections(model)], ids=lambda s: s.__name__)
def test_every_setting_has_description(section):
    for name, field in section.model_fields.items():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        assert is_section or (field.description or "").endswith("."), name


def test_power_cap_works_with_every_dispatcher(tmp_path):
    power = load_settings(written(tmp_path, "policy: {power: {cap_w: 100, watts: {cores: 8, gpus: 120}}}")).policy.power
    assert power.to_power_cap() == PowerCap(100, (("cores", 8), ("gpus", 120)))
    assert load_settings(written(tmp_path, "{}")).policy.power.to_power_cap() is None


def test_whatif_defaults_match_bridge_settings():
    """The simulator does not know the bridge, so it has these defaults again."""
    assert float(SIMULATED_MODES["control"].pace[INTERVAL]) == CycleSettings().interval_s
    assert float(SIMULATED_MODES["advise"].settings["every_s"]) == AdviseModeSettings().every_s
