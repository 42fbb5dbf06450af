"""The settings file's names of the adapter and the policy are resolved like all other names."""

import ast
import sys
import time
from pathlib import Path

import pytest
import structlog

import cpsched_bridge
from cpsched.errors import InvalidValue
from cpsched_bridge.adapters import mock, slurm
from cpsched_bridge.cycle.isolated_dispatcher import IsolatedDispatcher
from cpsched_bridge.errors import BackendStarting, BackendUnavailable, ClusterUnreachable, NotReady, SettingsError
from cpsched_bridge.ports import Capabilities, ReadinessCheck
from cpsched_bridge.program.bootstrap import (
    build_bridge_policies,
    check_until_ready,
    connect_backend,
    load_adapter,
    load_configured_adapter,
    make_fallback,
    make_policy,
    make_progress_listeners,
    plan_startup_steps,
    wait_for_checks,
)
from cpsched_bridge.settings import PolicySettings, Settings
from cpsched_bridge.store.lock_and_request_files import StartupProgressFile
from cpsched_bridge.telemetry.loop_health import SystemdNotifier
from cpsched_bridge.web.status_application import StatusApplication
from tests.bridges import STATE_DIR
from tests.fakes import FakeCluster, FakePace
from tests.installed import install

ADAPTER = """
    from cpsched_bridge.settings import Section

    class Options(Section):
        size: int = 1

    def connect(options):
        return ("a backend", options.size)

    class Here:
        Options = Options
        connect = staticmethod(connect)
"""
ABLE = """
    from cpsched_bridge.ports import Capabilities
    from cpsched_bridge.settings import Section

    class Options(Section):
        priorities: bool = False
        limits: bool = False
        decision_limit_s: float | None = None
        says: str = ""

    def connect(options):
        return "a backend"

    def can(options):
        if options.says == "nothing":
            return None
        if options.says == "wrong":
            return Capabilities(decision_limit_s=-1.0)
        if options.says == "much":
            raise SystemExit("I exit")
        return Capabilities(options.priorities, options.limits, options.decision_limit_s)
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    offered = {"mine": "mine_site", "gone": "gone_site", "lsf": "lsf_site"}
    install(tmp_path, "mine", {"mine_site": ADAPTER, "lsf_site": ABLE}, {"cpsched.adapters": offered})
    yield
    for name in ("mine_site", "lsf_site"):
        sys.modules.pop(name, None)


def test_finds_built_in_adapters_by_name():
    assert (load_adapter("mock"), load_adapter("slurm")) == (mock, slurm)


@pytest.mark.parametrize("words", ["mine", "mine_site:Here"])
def test_connects_plugin_adapter_with_its_options(site, words):
    settings = Settings.model_validate({"adapter": words, "options": {"size": 3}})
    assert connect_backend(settings) == ("a backend", 3)
    with pytest.raises(SettingsError, match=r"bridge.yaml:1: options.size: x: must be"):
        connect_backend(settings.model_copy(update={"options": {"size": "x"}}), "bridge.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "slum",
            r"slum: unknown adapter 'slum'; known: gone, lsf, mine, mock, pbs, slurm; did you mean 'slurm'\?$",
        ),
        (
            "gone",
            r"gone: adapter gone_site: gone_site cannot be imported: No module named 'gone_site'",
        ),
        (
            "mine_site:Section",
            r"mine_site:Section: adapter mine_site:Section: must define .*; missing: Options and connect$",
        ),
        (
            "mine_site:Here.connect",
            r"mine_site:Here.connect: adapter mine_site:Here.connect: must define .*; missing: Options and connect$",
        ),
    ],
)
def test_rejects_invalid_adapter_in_one_line(site, words, message):
    with pytest.raises(SettingsError, match=f"^bridge.yaml:1: adapter: {message}"):
        connect_backend(Settings(adapter=words), "bridge.yaml")


def test_builds_policy_with_files_named_in_settings(tmp_path):
    (tmp_path / "waits.json").write_text('{"parallel": 600}')
    settings = PolicySettings(
        dispatcher="prb", dispatcher_settings={"ewt_file": str(tmp_path / "waits.json")}, overrun="double"
    )
    policy = make_policy(settings.to_spec())
    assert policy.dispatcher.expected_waits.expected_wait_s("parallel") == 600
    assert policy.overrun == "double"


@pytest.mark.parametrize(("said", "rule"), [(None, "walltime"), ("one-second", "one-second")])
def test_overrun_setting_applies_to_default_dispatcher(said, rule):
    assert make_policy(PolicySettings(overrun=said).to_spec()).overrun == rule


AWAY = ReadinessCheck("controller", False, "no answer", may_pass_later=True)
WRONG = ReadinessCheck("job shrink", False, "allowed", "add disable_job_shrink")
MISSING = ReadinessCheck("accounting", False, "does not answer", required=False)


def away():
    """A cluster that answers from the third time on."""
    cluster = FakeCluster(readiness=[MISSING])
    cluster.fail("run_checks", BackendUnavailable("nobody there"))
    cluster.collect_output("run_checks", [AWAY])
    return cluster


CONTROL = Settings(mode="control")


@pytest.fixture
def systemd(monkeypatch):
    """A service manager that records its messages."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    told = []
    monkeypatch.setattr(SystemdNotifier, "notify", lambda self, *words: told.extend(words))
    return told


def test_waits_for_cluster_under_systemd(systemd):
    """A service that ended would be started a few times and then given up for good."""
    pace = FakePace(cycles=10)
    assert check_until_ready(CONTROL, away(), pace, SystemdNotifier())
    assert pace.waited == [2.0, 4.0]
    assert "STATUS=waiting for the cluster" in systemd
    assert any(words.startswith("EXTEND_TIMEOUT_USEC=") for words in systemd)


def test_wait_is_bounded_and_ends_with_signal(systemd):
    cluster, pace = FakeCluster(readiness=[AWAY]), FakePace(cycles=7)
    bounded = Settings(mode="control", cycle={"max_backoff_s": 10.0})
    assert not check_until_ready(bounded, cluster, pace, SystemdNotifier())
    assert pace.waited == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]


def test_does_not_wait_for_wrong_configuration(systemd):
    pace = FakePace(cycles=10)
    with pytest.raises(NotReady, match="job shrink: allowed; add disable_job_shrink") as caught:
        check_until_ready(CONTROL, FakeCluster(readiness=[AWAY, WRONG]), pace, SystemdNotifier())
    assert not isinstance(caught.value, ClusterUnreachable)
    assert pace.waited == []


def test_silent_cluster_is_error_at_once_without_systemd(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    for cluster in (away(), FakeCluster(readiness=[AWAY])):
        with pytest.raises(ClusterUnreachable):
            check_until_ready(CONTROL, cluster, FakePace(cycles=10), SystemdNotifier())


def test_failed_optional_check_is_logged_only(monkeypatch):
    with structlog.testing.capture_logs() as lines:
        assert check_until_ready(CONTROL, FakeCluster(readiness=[MISSING]), FakePace(), SystemdNotifier())
    assert [(line["event"], line["name"], line["found"]) for line in lines] == [
        ("check", "accounting", "does not answer")
    ]


BESIDE_SLURM = Capabilities(boosts=True, priorities=True, limits=True, preemption=True, decision_limit_s=0.1)


@pytest.mark.parametrize(
    ("can", "policy", "heeding"),
    [
        (BESIDE_SLURM, {}, {"site_weight": "1", "limit_s": "0.1"}),
        (BESIDE_SLURM, {"dispatcher": "pcp20"}, {"site_weight": "1"}),
        (BESIDE_SLURM, {"dispatcher_settings": {"site_weight": 0}}, {"site_weight": "0", "limit_s": "0.1"}),
        (BESIDE_SLURM, {"dispatcher_settings": {"limit_s": 0.5}}, {"site_weight": "1", "limit_s": "0.5"}),
        (BESIDE_SLURM, {"dispatcher": "easy"}, {"order": "priority"}),
        (BESIDE_SLURM, {"dispatcher": "greedy"}, {"order": "priority"}),
        (BESIDE_SLURM, {"dispatcher": "easy", "dispatcher_settings": {"order": "reg"}}, {"order": "reg"}),
        (BESIDE_SLURM, {"dispatcher": "list-saf"}, {}),
        (Capabilities(), {}, {}),
        (Capabilities(), {"dispatcher": "easy"}, {}),
        (Capabilities(priorities=True), {}, {"site_weight": "1"}),
        (Capabilities(decision_limit_s=2), {}, {"limit_s": "2"}),
    ],
)
def test_uses_priorities_and_clock_of_site_by_default(can, policy, heeding):
    settings = Settings.model_validate({"policy": policy})
    assert settings.policy.to_spec(can).dispatcher_settings == heeding


@pytest.mark.parametrize(("can", "order"), [(BESIDE_SLURM, "priority"), (Capabilities(decision_limit_s=0.1), "reg")])
def test_fallback_uses_priorities_and_clock_of_site(can, order):
    assert make_fallback(Settings(), can).dispatcher.scheme.order == order
    assert make_fallback(Settings.model_validate({"policy": {"fallback": "none"}}), can) is None


def test_built_in_adapters_have_capabilities():
    assert load_configured_adapter(Settings(adapter="slurm")).can == BESIDE_SLURM
    assert load_configured_adapter(Settings(adapter="slurm", options={"site_policy": False})).can == Capabilities(
        boosts=True, decision_limit_s=0.1
    )
    assert load_configured_adapter(Settings(adapter="mock")).can == Capabilities()


@pytest.mark.parametrize("priorities", [True, False])
@pytest.mark.parametrize("limits", [True, False])
@pytest.mark.parametrize("decision_limit_s", [None, 0.5])
def test_treats_third_adapter_by_capabilities(site, priorities, limits, decision_limit_s):
    options = {"priorities": priorities, "limits": limits, "decision_limit_s": decision_limit_s}
    ready = build_bridge_policies(
        Settings.model_validate({"adapter": "lsf", "state_dir": STATE_DIR, "options": options, "metrics": {"port": 0}})
    )
    heeding = ({"site_weight": "1"} if priorities else {}) | ({"limit_s": "0.5"} if decision_limit_s else {})
    assert ready.config.policy.dispatcher_settings == heeding
    assert ready.fallback.dispatcher.scheme.order == ("priority" if priorities else "reg")


def test_adapter_without_capabilities_has_none(site):
    assert load_configured_adapter(Settings(adapter="mine")).can == Capabilities()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("nothing", "InvalidValue: can=None: must return a cpsched_bridge.ports.Capabilities"),
        ("wrong", r"InvalidValue: decision_limit_s=-1.0: must be a positive number of seconds, or None"),
        ("much", "SystemExit: I exit"),
    ],
)
def test_rejects_adapter_with_broken_capabilities_in_one_line(site, says, told):
    with pytest.raises(SettingsError, match=f"^b.yaml:1: adapter: lsf: its capabilities cannot be read: {told}$"):
        load_configured_adapter(Settings(adapter="lsf", options={"says": says}), "b.yaml")


@pytest.mark.parametrize(
    "wrong",
    [
        {"priorities": 1},
        {"limits": "yes"},
        {"decision_limit_s": 0},
        {"decision_limit_s": True},
        {"decision_limit_s": float("nan")},
    ],
)
def test_validates_capabilities(wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Capabilities(**wrong)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"adapter": "mock"}, "is not supported by the adapter mock with these options; use false"),
        ({"options": {"site_policy": False}}, "is not supported by the adapter slurm with these options; use false"),
        ({"policy": {"power": {"cap_w": 9, "watts": {"cores": 1}}}}, r"must be false with policy.power.cap_w"),
    ],
)
def test_rejects_choice_of_victims_that_cannot_be_verified(settings, rule):
    with pytest.raises(SettingsError, match=f"preemption.choose: true: {rule}"):
        build_bridge_policies(
            Settings.model_validate({"state_dir": STATE_DIR, "preemption": {"choose": True}, **settings})
        )
    build_bridge_policies(Settings.model_validate({"state_dir": STATE_DIR, "preemption": {"choose": True}}))


def test_rejects_advise_mode_without_boost_capability():
    with pytest.raises(SettingsError, match="mode: advise: is not supported by the adapter mock; use shadow"):
        build_bridge_policies(Settings(mode="advise", adapter="mock", state_dir=Path(STATE_DIR)))
    assert build_bridge_policies(
        Settings(mode="advise", adapter="mock", state_dir=Path(STATE_DIR), options={"scheduler": "priority"})
    ).chosen.can.boosts


def test_no_code_compares_adapter_names():
    """The name chooses an adapter; nothing else may follow from it."""
    root = Path(cpsched_bridge.__file__).parents[2]
    packages = [root / "cpsched", root / "sim" / "cpsched_sim", root / "bridge" / "cpsched_bridge"]
    own = root / "bridge" / "cpsched_bridge" / "adapters" / "slurm"
    files = [path for package in packages for path in package.rglob("*.py") if own not in path.parents]
    named = [path.name for path in files for node in ast.walk(ast.parse(path.read_text())) if compares(node)]
    assert len(files) > 200
    assert named == []


def compares(node):
    """Whether this is a comparison, or a case, with the name of an adapter."""
    parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    parts += [node.value] if isinstance(node, ast.MatchValue) else []
    return any(isinstance(c, ast.Constant) and c.value in ("slurm", "mock") for part in parts for c in ast.walk(part))


def importing():
    """A cluster whose adapter begins for two looks."""
    cluster = FakeCluster(readiness=[MISSING])
    for look in (1, 2):
        cluster.fail("run_checks", BackendStarting(f"hello: not sent yet: imports pyslurm, look {look}"))
        cluster.collect_output("not_ready_reason", "imports pyslurm")
    return cluster


def test_waits_for_starting_adapter_without_systemd(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    pace, told = FakePace(cycles=10), []
    assert check_until_ready(CONTROL, importing(), pace, SystemdNotifier(), told.append)
    assert told[1:] == [f"hello: not sent yet: imports pyslurm, look {look}" for look in (1, 2)]
    assert pace.waited == [0.0, 0.0], "the adapter itself has waited for a while each time"


def test_signal_ends_wait_for_starting_adapter():
    assert not check_until_ready(CONTROL, importing(), FakePace(cycles=1), SystemdNotifier())


def test_doctor_waits_for_starting_adapter_and_says_so():
    told = []
    assert wait_for_checks(importing(), told.append) == [MISSING]
    assert len(told) == 2


def all_done(found):
    """What the steps of a beginning say, one after the other."""
    said = []
    for step in found:
        while (words := step()) is not None:
            said += [words] if words not in said else []
            time.sleep(0.02)
    return said


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_kernels_are_ready_in_both_processes_before_deciding(isolation):
    settings = Settings(adapter="mock", policy=PolicySettings(dispatcher="easy", isolation=isolation))
    spec, loaded = settings.policy.to_spec(), []
    policy = make_policy(spec)
    with plan_startup_steps(policy, spec, settings, importing(), loaded.append) as found:
        said = all_done(found)
        assert said[0] == "imports pyslurm"
        assert any("kernels are ready" in words for words in said)
        assert any("kernels are ready" in words for words in loaded), "the bridge has loaded its own"
        beside = policy.dispatcher if isolation == "process" else None
        assert isinstance(policy.dispatcher, IsolatedDispatcher) == (isolation == "process")
        assert beside is None or beside.pid is not None
    assert beside is None or beside.pid is None, "it ends with the bridge"


def test_reports_startup_step_in_all_outputs(systemd, tmp_path):
    settings = Settings(state_dir=tmp_path)
    watch = StatusApplication(settings)
    found = make_progress_listeners(settings, SystemdNotifier(), watch)
    for tell in found:
        tell("compiles kernels")
    assert {"STATUS=compiles kernels", "WATCHDOG=1", "EXTEND_TIMEOUT_USEC=600000000"} <= set(systemd)
    assert StartupProgressFile(settings.state_dir).read_step()[0] == "compiles kernels"
    assert watch.health.list_unready_reasons()[0] == "no decision yet: compiles kernels"
    for tell in found:
        tell("")
    assert StartupProgressFile(settings.state_dir).read_step() is None
    assert watch.health.list_unready_reasons() == ["no cycle has ended yet"]
