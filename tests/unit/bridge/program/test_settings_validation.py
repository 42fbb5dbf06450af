"""`doctor` and `bridge` reject the same settings files with the same messages: file, line, field, value, rule."""

import socket

import pytest
import structlog
from typer.testing import CliRunner

from cpsched_bridge.cycle.bridge_loop import Bridge
from cpsched_bridge.errors import InvalidSetting
from cpsched_bridge.program import settings_validation
from cpsched_bridge.program.cli import app
from cpsched_bridge.program.settings_validation import parse_systemd_time_span_s
from cpsched_bridge.settings import Settings
from tests.unit.bridge.test_settings import written

# Each breaks one rule. Line 1 is the adapter, line 2 the state directory; (text from line 3 on, line, the message).
WRONG = [
    ("mode: contrl", 3, "mode: contrl: must be 'shadow', 'advise' or 'control'"),
    ("mode: true", 3, "mode: True: must be 'shadow', 'advise' or 'control'"),
    ("on_stop: stay", 3, "on_stop: stay: must be 'release' or 'keep'"),
    ("durable: 1", 3, "durable: 1: must be true or false"),
    ("durable: 'true'", 3, "durable: true: must be true or false"),
    ("durable:", 3, "durable: nothing: must be true or false"),
    ("log_format: xml", 3, "log_format: xml: must be 'auto', 'json' or 'text'"),
    ("heartbeat: [a]", 3, "heartbeat: a list: must be a path"),
    ("colour: red", 3, "colour: red: no such setting"),
    ("metric: {enabled: false}", 3, "metric: a mapping: no such setting; did you mean 'metrics'?"),
    ("policy:", 3, "policy: nothing: must be a mapping of settings; omit the line for the defaults"),
    ("policy: easy", 3, "policy: easy: must be a mapping of settings"),
    ("policy: [easy]", 3, "policy: a list: must be a mapping of settings"),
    ("policy:\n  dispatcher: esy", 4, "policy.dispatcher: esy: unknown dispatcher 'esy'; known: "),
    ("policy:\n  dispatcher: 3", 4, "policy.dispatcher: 3: must be text"),
    ("policy:\n  dispatcher: nowhere:Mine", 4, "policy.dispatcher: nowhere:Mine: dispatcher nowhere:Mine: nowhere"),
    ("policy:\n  dispatcher: os:path", 4, "policy.dispatcher: os:path: must be a dispatcher: a name, "),
    ("policy:\n  dispatcher: tests.bad_plugins:UnmakeableDispatcher", 4, "policy.dispatcher: tests.bad_plugins:Unma"),
    ("policy:\n  dispatcher: oracle", 4, "policy.dispatcher: oracle: unknown dispatcher"),
    ("policy:\n  predictor: crystal", 4, "policy.predictor: crystal: unknown predictor 'crystal'; known: "),
    ("policy:\n  predictor: oracle", 4, "policy.predictor: oracle: unknown predictor 'oracle'; known: "),
    ("policy:\n  fallback: esay", 4, "policy.fallback: esay: unknown dispatcher 'esay'; known: "),
    ("policy:\n  fallback: null", 4, "policy.fallback: nothing: must be text"),
    ("policy:\n  overrun: never", 4, "policy.overrun: never: must be 'one-second', 'double' or 'walltime'"),
    ("policy:\n  isolation: perhaps", 4, "policy.isolation: perhaps: must be 'auto', 'process' or 'none'"),
    ("policy:\n  dispatcher_settings: fast", 4, "policy.dispatcher_settings: fast: must be a mapping"),
    ("policy:\n  dispatcher_settings:", 4, "policy.dispatcher_settings: nothing: must be a mapping"),
    (
        "policy:\n  dispatcher_settings:\n    horizn: 5",
        5,
        "policy.dispatcher_settings.horizn: 5: unknown parameter of lookahead 'horizn'; known: ",
    ),
    (
        "policy:\n  dispatcher_settings:\n    horizon: far",
        5,
        "policy.dispatcher_settings.horizon: far: must be int",
    ),
    (
        "policy:\n  dispatcher_settings:\n    work: 9\n    horizon: 0",
        6,
        "policy.dispatcher_settings.horizon: 0: must be positive",
    ),
    (
        "policy:\n  dispatcher_settings:\n    objective: fun",
        5,
        "policy.dispatcher_settings.objective: fun: must be one of ",
    ),
    (
        "policy:\n  dispatcher: prb\n  dispatcher_settings: {ewt_file: /none.json}",
        5,
        "policy.dispatcher_settings.ewt_file: /none.json: cannot be read as JSON",
    ),
    (
        "policy:\n  dispatcher: easy\n  dispatcher_settings: {seed: 1}",
        5,
        "policy.dispatcher_settings.seed: 1: unknown parameter of easy 'seed'",
    ),
    (
        "policy:\n  predictor: profile\n  predictor_settings: {remember: lots}",
        5,
        "policy.predictor_settings.remember: lots: must be int",
    ),
    (
        "policy:\n  predictor: quantile\n  predictor_settings:\n    quantil: 0.9",
        6,
        "policy.predictor_settings.quantil: 0.9: unknown parameter of quantile 'quantil'",
    ),
    ("policy:\n  power: {cap_w: 100}", 4, "policy.power: a mapping: cap_w and watts must be set together"),
    ("policy:\n  power: {cap_w: 0, watts: {cores: 8}}", 4, "policy.power.cap_w: 0: must be above 0"),
    ("policy:\n  power: {cap_w: 9, watts: {cores: lots}}", 4, "policy.power.watts.cores: lots: must be a whole number"),
    ("cycle: {interval_s: 0}", 3, "cycle.interval_s: 0: must be above 0"),
    ("cycle: {interval_s: often}", 3, "cycle.interval_s: often: must be a number"),
    ("cycle: {interval_s: true}", 3, "cycle.interval_s: True: must be a number"),
    ("cycle: {interval_s: .nan}", 3, "cycle.interval_s: nan: must be a finite number"),
    ("cycle: {interval_s: 1.0e+30}", 3, "cycle.interval_s: 1e+30: must be within 1,000,000,000"),
    ("cycle: {max_commands: 1.5}", 3, "cycle.max_commands: 1.5: must be a whole number"),
    ("cycle: {max_commands: -1}", 3, "cycle.max_commands: -1: must be above 0"),
    ("cycle: {checks_every_s: -1}", 3, "cycle.checks_every_s: -1: must be at least 0"),
    ("cycle: {decide_timeout_s: 120}", 3, "cycle.decide_timeout_s: 120: must be less than systemd's watchdog, 120 s"),
    ("cycle:\n  decide_timeout_s: 3600", 4, "cycle.decide_timeout_s: 3600: must be less than systemd's watchdog"),
    ("start: {timeout_s: 0}", 3, "start.timeout_s: 0: must be above 0"),
    ("start: {adopt: 0}", 3, "start.adopt: 0: must be true or false"),
    ("start: {max_failures: many}", 3, "start.max_failures: many: must be a whole number"),
    ("lease: {duration_s: 0}", 3, "lease.duration_s: 0: must be above 0"),
    ("circuit_breaker:\n  failing_users: null", 4, "circuit_breaker.failing_users: nothing: must be a whole number"),
    ("metrics: {port: 65536}", 3, "metrics.port: 65536: must be at most 65535"),
    ("metrics: {port: -1}", 3, "metrics.port: -1: must be at least 0"),
    ("metrics: {host: 203.0.113.7}", 3, "metrics.host: 203.0.113.7: the bridge cannot listen on it: "),
    ("metrics: {host: no such host}", 3, "metrics.host: no such host: the bridge cannot listen on it: "),
    ("metrics: {enabled: maybe}", 3, "metrics.enabled: maybe: must be true or false"),
    ("page: {users: some}", 3, "page.users: some: must be 'show' or 'hide'"),
    ("page: {hosts: example.org}", 3, "page.hosts: example.org: must be a list"),
    ("page: {hosts: [1]}", 3, "page.hosts.0: 1: must be text"),
    ("journal: {keep_days: 0}", 3, "journal.keep_days: 0: must be above 0"),
    ("journal: {max_mib: huge}", 3, "journal.max_mib: huge: must be a number"),
    ("page: {user_header: X-User}", 3, "page.user_header: X-User: requires page.trusted_proxies"),
    (
        "page: {users: hide, user_header: X-User, trusted_proxies: [10.0.0.1]}",
        3,
        "page.user_header: X-User: requires page.users: show",
    ),
    (
        "page:\n  trusted_proxies: [10.0.0.1, 10.0.0.2]",
        4,
        "page.trusted_proxies: [10.0.0.1, 10.0.0.2]: requires page.user_header",
    ),
    ("page:\n  operators: [root]", 4, "page.operators: [root]: requires page.user_header"),
    ("cycle:\n  trigger_files: [/run/w]", 4, "cycle.trigger_files: [/run/w]: requires cycle.interval_s above"),
    ("options: [1]", 3, "options: a list: must be a mapping"),
    ("options: {colour: red}", 3, "options.colour: red: no such setting"),
    ("mode: shadow\nmode: control", 4, "mode: given twice: must occur only once"),
    ("mode: [", 3, "yaml: mode: [: must be YAML: "),
    (
        "mode: shadow\n\tcycle: {}",
        4,
        "yaml: cycle: {}: must be YAML: found character '\\t' that cannot start",
    ),
    ("mode: shadow: control", 3, "yaml: mode: shadow: control: must be YAML: mapping values are not allowed here"),
    ("mode shadow", 3, "yaml: mode shadow: must be YAML: could not find expected ':'"),
    ("mode: !!str shadow", 3, "yaml: tag:yaml.org,2002:str: must be removed: tags are not supported"),
]
OF_ONE_ADAPTER = [
    ("slurm", "options:\n  deadline_s: 0", 4, "options.deadline_s: 0: must be above 0"),
    ("slurm", "options: {boost: -1}", 3, "options.boost: -1: must be at least 0"),
    ("slurm", "options: {site_policy: 0}", 3, "options.site_policy: 0: must be true or false"),
    ("slurm", "options: {history_deadline_s: .inf}", 3, "options.history_deadline_s: inf: must be a finite number"),
    ("slurm", "options: {site_policy: false, boost: 3}", 3, "options.boost: 3: requires options.site_policy: true"),
    ("mock", "options: {format: swf}", 3, "options.format: swf: requires options.trace"),
    ("mock", "options:\n  trace: a\n  seed: 2", 5, "options.seed: 2: must not be set together with options.trace"),
    ("mock", "options: {days: 2, trace: a}", 3, "options.days: 2.0: must not be set together with options.trace"),
    ("mock", "options: {load: 2, trace: a}", 3, "options.load: 2.0: must not be set together with options.trace"),
    ("mock", "options: {days: -1}", 3, "options.days: -1: must be above 0"),
    ("mock", "options:\n  speed: 0", 4, "options.speed: 0: must be above 0"),
    ("mock", "options:\n  trace: /none.swf", 4, "options.trace: /none.swf: /none.swf: No such file or directory"),
    ("mock", "options: {system: pool}", 3, "options.system: pool: requires options.trace"),
    (
        "mock",
        "options:\n  maintenance: [{name: m, nodes: [n999], from_s: 0, for_s: 5}]",
        4,
        "options.maintenance: n999: must be a node of the system",
    ),
]
OF_THE_FIRST_LINES = [
    (
        "adapter: slum\nstate_dir: /tmp/state",
        1,
        "adapter: slum: unknown adapter 'slum'; known: mock, pbs, slurm; did you mea",
    ),
    (
        "adapter: os.path\nstate_dir: /tmp/state",
        1,
        "adapter: os.path: adapter os.path: must define Options and connect; missing",
    ),
    ("adapter: mock\nstate_dir: /dev/null/state", 2, "state_dir: /dev/null/state: must be a folder: /dev/null is a f"),
    ("adapter: mock\nstate_dir: 5", 2, "state_dir: 5: must be a path"),
    ("- adapter", 1, "file: a list: must be a mapping of settings"),
    ("", 1, "file: empty: must contain at least `adapter: slurm` or `adapter: mock`"),
]


@pytest.fixture(autouse=True)
def no_bridge_runs(monkeypatch):
    """A bridge that is not refused would run until it is stopped."""
    monkeypatch.setattr(Bridge, "run", lambda self: [])
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.setenv("PATH", "")  # no systemctl, whose unit may have another watchdog
    yield
    structlog.reset_defaults()  # the log of `bridge` goes to what the runner has closed by now


def verdict(command, path):
    """Return the exit code and the output of a command."""
    result = CliRunner().invoke(app, [command, "--config", str(path)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


def assert_refused_alike(path, line, told):
    refused = verdict("bridge", path)
    assert refused[0] == 2, refused
    assert refused[1].startswith(f"error: {path}:{line}: {told}"), refused[1]
    assert refused[1].count("\n") == 1
    assert verdict("doctor", path) == refused


@pytest.mark.parametrize(("text", "line", "told"), WRONG)
def test_bridge_and_doctor_reject_settings_alike(tmp_path, text, line, told):
    for adapter in ("mock", "slurm"):
        first = f"adapter: {adapter}\nstate_dir: {tmp_path / 'state'}\n"
        assert_refused_alike(written(tmp_path, first + text + "\n"), line, told)
        assert not (tmp_path / "state").exists(), "nothing was begun"


@pytest.mark.parametrize(("adapter", "text", "line", "told"), OF_ONE_ADAPTER)
def test_bridge_and_doctor_reject_adapter_options_alike(tmp_path, adapter, text, line, told):
    first = f"adapter: {adapter}\nstate_dir: {tmp_path / 'state'}\n"
    assert_refused_alike(written(tmp_path, first + text + "\n"), line, told)


@pytest.mark.parametrize(("text", "line", "told"), OF_THE_FIRST_LINES)
def test_bridge_and_doctor_reject_adapter_and_state_dir_alike(tmp_path, text, line, told):
    assert_refused_alike(written(tmp_path, text + "\n"), line, told)


def test_bridge_and_doctor_reject_unknown_power_resource_alike(tmp_path, monkeypatch):
    """The first reading shows it; no command has been sent by then."""
    monkeypatch.setattr(Bridge, "run", lambda self: self.cycle() and [])
    first = f"adapter: mock\nstate_dir: {tmp_path / 'state'}\nmetrics: {{port: 0}}\noptions: {{days: 0.01}}\n"
    path = written(tmp_path, first + "policy:\n  power:\n    cap_w: 900\n    watts: {cores: 8, fans: 3}\n")
    told = "policy.power.watts.fans: 3: must be a resource of the cluster: cores, memory_mib, gpus, mics"
    for command in ("doctor", "bridge"):
        code, words = verdict(command, path)
        assert (code, words.splitlines()[-1]) == (2, f"error: {path}:8: {told}")


def test_doctor_accepts_settings_that_bridge_accepts(tmp_path):
    text = f"adapter: mock\nstate_dir: {tmp_path / 'state'}\nmetrics: {{port: 0}}\noptions: {{days: 0.01}}\n"
    path = written(tmp_path, text + "cycle: {decide_timeout_s: 119}\n")
    assert verdict("doctor", path)[0] == 0
    assert not (tmp_path / "state").exists(), "a doctor leaves nothing behind"
    assert verdict("bridge", path)[0] == 0


@pytest.mark.parametrize(
    ("adapter", "text"),
    [
        ("mock", "options: {trace: a, days: 1.0, seed: 1, load: 1}"),
        ("mock", "options: {format: null}"),
        ("mock", "options: {trace: a, format: swf}"),
        ("slurm", "options: {site_policy: false, boost: 0}"),
        ("slurm", "page: {trusted_proxies: [], operators: [], users: show, hosts: [a]}"),
        ("slurm", "page: {enabled: false, users: hide}"),
        ("slurm", "page: {user_header: X-User, trusted_proxies: [10.0.0.1], operators: [root]}"),
        ("slurm", "cycle: {interval_s: 9, trigger_files: [/run/w]}"),
        ("slurm", "mode: shadow\nstart: {timeout_s: 30}"),
    ],
)
def test_accepts_defaults_and_effective_settings(tmp_path, adapter, text):
    """A copied default is no choice, and a switch may be off for a while."""
    path = written(tmp_path, f"adapter: {adapter}\nstate_dir: {tmp_path}\nmetrics: {{port: 0}}\n{text}\n")
    assert verdict("config", path)[0] == 0


def test_longer_watchdog_allows_longer_decisions(tmp_path, monkeypatch):
    text = f"adapter: mock\nstate_dir: {tmp_path / 'state'}\nmetrics: {{port: 0}}\noptions: {{days: 0.01}}\n"
    path = written(tmp_path, text + "cycle: {decide_timeout_s: 200}\n")
    monkeypatch.setenv("WATCHDOG_USEC", "300000000")
    assert [verdict(command, path)[0] for command in ("doctor", "bridge")] == [0, 0]
    monkeypatch.setenv("WATCHDOG_USEC", "200000000")
    assert_refused_alike(path, 5, "cycle.decide_timeout_s: 200: must be less than systemd's watchdog, 200 s")


def test_doctor_accepts_port_in_use(tmp_path):
    """It may be that of the bridge beside which the doctor is asked."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = f"adapter: mock\nstate_dir: {tmp_path / 'state'}\nmetrics: {{port: {port}}}\noptions: {{days: 0.01}}\n"
        path = written(tmp_path, text)
        assert verdict("doctor", path)[0] == 0
        assert verdict("bridge", path)[0] == 1


@pytest.mark.parametrize(
    ("span", "seconds"), [("2min", 120), ("1h 30s", 3630), ("500ms", 0.5), ("0", None), ("infinity", None), ("", None)]
)
def test_parses_systemd_time_spans(span, seconds):
    assert parse_systemd_time_span_s(span) == seconds


def test_existing_state_dir_may_be_readonly(tmp_path, monkeypatch):
    monkeypatch.setattr(settings_validation.os, "access", lambda path, mode: False)
    there, missing = (Settings(adapter="mock", state_dir=tmp_path / name) for name in ("", "missing"))
    settings_validation.check_state_dir(there)
    with pytest.raises(InvalidSetting, match=f"cannot be created: {tmp_path} is not writable"):
        settings_validation.check_state_dir(missing)
