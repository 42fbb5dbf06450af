"""Every setting is shown with its value and the source of the value."""

import json

import pytest
from typer.testing import CliRunner

from cpsched_bridge.effective_config import EffectiveSetting, to_yaml
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.bootstrap import build_bridge_policies
from cpsched_bridge.program.cli import app
from cpsched_bridge.settings import Settings, load_settings
from tests.bridges import STATE_DIR, a_bridge
from tests.fakes import FakeCluster, FakePace


def told(adapter="slurm", **settings):
    """Return the effective values of these settings."""
    return build_bridge_policies(
        Settings.model_validate({"adapter": adapter, "state_dir": STATE_DIR, "metrics": {"port": 0}, **settings})
    ).config


def row(found, name):
    """The one row of that name."""
    (only,) = [row for row in found.rows if row.name == name]
    return only.value, only.source


@pytest.mark.parametrize(
    ("name", "value", "source"),
    [
        ("mode", "shadow", "default"),
        ("adapter", "slurm", "file"),
        ("heartbeat", f"{STATE_DIR}/heartbeat", "default"),
        ("policy.dispatcher", "lookahead", "default"),
        ("policy.dispatcher_settings.horizon", 50, "file"),
        ("policy.dispatcher_settings.effort", None, "dispatcher"),
        ("policy.dispatcher_settings.limit_s", 0.1, "adapter"),
        ("policy.dispatcher_settings.site_weight", 1.0, "adapter"),
        ("policy.predictor_settings.remember", 40, "predictor"),
        ("policy.predictor_settings.quantile", 0.9, "file"),
        ("policy.overrun", "walltime", "dispatcher"),
        ("policy.fallback.order", "priority", "adapter"),
        ("policy.fallback.overrun", "walltime", "dispatcher"),
        ("cycle.interval_s", 2.5, "file"),
        ("cycle.max_commands", 500, "default"),
        ("options.boost", 5, "file"),
        ("options.deadline_s", 10.0, "default"),
        ("adapter.decide_s", 0.1, "adapter"),
    ],
)
def test_setting_has_value_and_source(name, value, source):
    policy = {"predictor": "quantile", "predictor_settings": {"quantile": 0.9}, "dispatcher_settings": {"horizon": 50}}
    found = told(policy=policy, cycle={"interval_s": 2.5}, options={"boost": 5})
    assert row(found, name) == (value, source)


def test_lists_every_setting_once():
    found = told()
    names = [row.name for row in found.rows]
    assert len(set(names)) == len(names)
    plain = Settings(adapter="slurm").model_dump()
    below = {f"{section}.{name}" for section, given in plain.items() if isinstance(given, dict) for name in given}
    expanded = {"policy.dispatcher_settings", "policy.predictor_settings", "policy.power"}
    assert below - expanded <= set(names)
    assert {name for name, given in plain.items() if not isinstance(given, dict)} <= set(names)


def test_built_policy_has_listed_settings():
    """The bridge's policies have exactly the reported settings."""
    for settings in ({}, {"dispatcher": "easy"}, {"dispatcher": "pcp20", "fallback": "none"}, {"overrun": "double"}):
        ready = build_bridge_policies(
            Settings.model_validate(
                {"adapter": "slurm", "state_dir": STATE_DIR, "policy": settings, "metrics": {"port": 0}}
            )
        )
        found = ready.config
        assert row(found, "policy.overrun")[0] == ready.policy.overrun
        for name, text in found.policy.dispatcher_settings.items():
            assert str(row(found, f"policy.dispatcher_settings.{name}")[0]) in (text, f"{text}.0")
        assert (found.fallback is None) == (ready.fallback is None)


# ------------------------------------------------------------------------------------------ reported alike everywhere


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A settings file."""
    monkeypatch.setenv("PATH", "")  # no systemctl
    path = tmp_path / "bridge.yaml"
    path.write_text(
        f"adapter: mock\nstate_dir: {tmp_path / 'state'}\nmetrics: {{port: 0}}\noptions: {{days: 0.01}}\n"
        "policy:\n  dispatcher: easy\n  dispatcher_settings: {order: priority}\n"
    )
    return path


def command(*words):
    """(exit code, standard output) of a command."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_prints_table_and_json(file):
    code, text = command("config", "--config", file, "--json")
    found = json.loads(text)
    assert code == 0
    assert (found["policy"], found["fallback"]) == ("easy / walltime order=priority", "easy / walltime")
    order = {"name": "policy.dispatcher_settings.order", "value": "priority", "source": "file"}
    assert order in found["settings"]
    code, text = command("config", "--config", file)
    assert code == 0
    assert text.startswith("policy: easy / walltime order=priority\nfallback: easy / walltime\n")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "policy.dispatcher_settings.order priority file" in lines
    assert len(lines) == len(found["settings"]) + 3


def test_number_without_json_form_is_text(file):
    file.write_text(
        f"adapter: mock\nstate_dir: {STATE_DIR}\nmetrics: {{port: 0}}\n"
        "policy: {dispatcher_settings: {overdue_h: inf}}\n"
    )
    code, text = command("config", "--config", file, "--json")
    assert code == 0
    found = json.loads(text, parse_constant=pytest.fail)["settings"]
    assert [row["value"] for row in found if row["name"].endswith(".overdue_h")] == ["inf"]


def test_command_rejects_what_bridge_rejects(file):
    file.write_text("adapter: mock\npolicy: {dispatcher: esy}\n")
    assert command("config", "--config", file)[0] == 2
    code, text = command("config", "--config", file, "--json")
    assert code == 2
    assert "esy" in json.loads(text)["error"]["message"]


def test_doctor_names_policy(file):
    code, text = command("doctor", "--config", file)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert code == 0
    assert any(line.startswith("policy ok easy / walltime order=priority; fallback easy / walltime") for line in lines)


def test_bridge_records_configuration_at_start(tmp_path):
    found = told(policy={"dispatcher_settings": {"horizon": 7}}, options={"boost": 5})
    bridge = a_bridge(tmp_path, FakeCluster(), config=found, pace=FakePace(cycles=1))
    bridge.run()
    (event,) = bridge.journal.list_events(kind="settings")
    assert event.detail == found.format_decision_settings()
    assert "policy.dispatcher_settings.horizon=7 (file); " in event.detail
    assert "policy.overrun=walltime (dispatcher)" in event.detail
    assert "options." not in event.detail, "an option may be secret"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), (True, "true"), ({"a": [1, None]}, "{a: [1, null]}"), (0.5, "0.5"), ("x", "x")]
)
def test_formats_values_as_in_file(value, text):
    assert to_yaml(value) == text
    assert str(EffectiveSetting("n", value, "file")) == f"n={text} (file)"


GOAL, OBJECTIVE = "policy.goal", "policy.dispatcher_settings.objective"


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        ({"goal": "waits"}, {GOAL: ("waits", "file"), OBJECTIVE: ("waits", "goal")}),
        ({}, {GOAL: (None, "default"), OBJECTIVE: ("balance", "dispatcher")}),
        ({"dispatcher_settings": {"objective": "af"}}, {GOAL: (None, "default"), OBJECTIVE: ("af", "file")}),
        ({"dispatcher_settings": {"site_weight": 1, "limit_s": 0.1}},
         {f"policy.dispatcher_settings.{name}": (value, "file")
          for name, value in (("site_weight", 1.0), ("limit_s", 0.1))}),
    ],
    ids=["goal", "without goal", "objective instead of goal", "file value equal to adapter default"],
)  # fmt: skip
def test_dispatcher_setting_has_its_source(policy, rows):
    found = told(policy=policy)
    assert {name: row(found, name) for name in rows} == rows
    assert ("objective" in found.policy.dispatcher_settings) == (rows.get(OBJECTIVE, ("", ""))[1] in ("goal", "file"))


def test_weights_select_objective_of_nearest_goal():
    assert row(told(policy={"goal": {"bsld": 2, "awf": 1}}), OBJECTIVE)[1] == "goal"


@pytest.mark.parametrize(
    ("policy", "large", "longest"),
    [
        ({"goal": "waits"}, 1.05, 1.05),
        ({"goal": {"mean_wait": 1}}, 1.05, 1.05),
        ({}, 1.0, 1.0),
        ({"goal": "large-jobs"}, None, None),
        ({"dispatcher": "easy"}, None, None),
    ],
)
def test_targets_are_those_of_objective_in_effect(policy, large, longest):
    found = told(policy=policy).easy_ratio_targets
    assert (found.get("large"), found.get("large_squared"), found.get("longest")) == (large, large, longest)


def test_config_shows_targets(file):
    settings = file.read_text().partition("policy:")[0]
    file.write_text(f"{settings}policy: {{goal: waits}}\n")
    line = (
        "Targets compared with EASY: large jobs at most 105 %, large jobs squared at most 105 %, "
        "longest wait at most 105 %"
    )
    assert command("config", "--config", file)[1].splitlines()[2] == line
    found = json.loads(command("config", "--config", file, "--json")[1])
    assert found["easy_targets"] == {"large": 1.05, "large_squared": 1.05, "longest": 1.05}
    file.write_text(f"{settings}policy: {{goal: large-jobs}}\n")
    assert "Targets" not in command("config", "--config", file)[1]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            {"goal": "waits", "dispatcher_settings": {"objective": "af"}},
            "policy.goal: waits: must not be set together with dispatcher_settings",
        ),
        ({"goal": "waits", "dispatcher": "list-reg"}, "requires a dispatcher with an objective; list-reg has none"),
    ],
)
def test_rejects_goal_with_conflicting_setting(policy, message):
    with pytest.raises(SettingsError, match=message):
        told(policy=policy)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("goal: wait", "unknown goal 'wait'"),
        ("goal: {bsld: -1}", "must be a weight"),
        ("goal: [waits]", "goal"),
    ],
)
def test_rejects_invalid_goal_with_file_and_line(tmp_path, policy, message):
    path = tmp_path / "bridge.yaml"
    path.write_text(f"adapter: mock\npolicy:\n  {policy}\n")
    with pytest.raises(SettingsError, match=f"bridge.yaml:3: policy.*{message}"):
        load_settings(path)
