"""Plug-ins are found by name or path in every API. A broken plug-in is one line of output and affects nothing else."""

import importlib
import json
import sys

import pytest
from typer.testing import CliRunner

from cpsched import metrics
from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.errors import InvalidValue, PluginLoadError, UnknownName
from cpsched.registry import DISPATCHERS, PREDICTORS, BrokenPlugin
from cpsched_sim.cli import app
from tests.installed import HALF, SMALLEST, install

GROUP = "cpsched.dispatchers"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path; modules imported from it are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_finds_plugin_by_entry_point(site):
    points = {GROUP: {"smallest": "mine_a:SmallestFirst"}, "cpsched.predictors": {"half": "mine_b:Half"}}
    install(site, "mine", {"mine_a": SMALLEST, "mine_b": HALF}, points)
    listing = DISPATCHERS.find("smallest")
    assert (listing.summary, listing.source) == ("Smallest area first.", "mine 1.0")
    assert [(p.name, p.default) for p in listing.parameters()] == [("reservations", 1)]
    assert DISPATCHERS.build("smallest", {"reservations": "3"}).reservations == 3
    assert type(PREDICTORS.build("half")).__name__ == "Half"
    with pytest.raises(UnknownName, match=r"known: .*, smallest; did you mean 'smallest'"):
        DISPATCHERS.find("smalest")


def test_module_and_class_need_no_entry_point(site):
    install(site, "mine", {"mine_c": SMALLEST})
    assert DISPATCHERS.build("mine_c:SmallestFirst", {"reservations": "2"}).reservations == 2
    with pytest.raises(InvalidValue, match="reservations=x: must be int"):
        DISPATCHERS.build("mine_c:SmallestFirst", {"reservations": "x"})


def test_naming_plugin_imports_no_other(site):
    install(site, "mine", {"mine_d": SMALLEST}, {GROUP: {"good": "mine_d:SmallestFirst", "bad": "no_such_module:X"}})
    assert DISPATCHERS.build("good").reservations == 1
    assert "no_such_module" not in sys.modules


BROKEN = {
    "not-there": ("no_such_module:X", "no_such_module cannot be imported: No module named 'no_such_module'"),
    "raises": ("mine_raises:X", "mine_raises cannot be imported: ZeroDivisionError: division by zero"),
    "exits": ("mine_exits:X", "mine_exits cannot be imported: SystemExit: 3"),
    "no-class": ("mine_e:SmallstFirst", "mine_e has no attribute SmallstFirst; did you mean 'SmallestFirst'?"),
    "wrong-base": ("mine_e:Wrong", "must derive from Dispatcher (cpsched.dispatchers.base)"),
    "no-thing": ("mine_e:NUMBER", "must be a dispatcher: a name, package.module:Class, a class or an instance"),
    "easy": ("mine_e:SmallestFirst", "this name belongs to a built-in; rename the entry point"),
}


@pytest.fixture
def broken(site):
    text = SMALLEST + "\n    class Wrong: pass\n    NUMBER = 7\n"
    modules = {"mine_e": text, "mine_raises": "1 / 0", "mine_exits": "raise SystemExit(3)"}
    points = {name: words for name, (words, _) in BROKEN.items()}
    install(site, "mine", modules, {GROUP: {**points, "good": "mine_e:SmallestFirst"}})


def test_broken_plugin_is_named_in_one_line(broken):
    found = {each.name: each.error for each in DISPATCHERS.iterate_registrations() if isinstance(each, BrokenPlugin)}
    assert found == {
        name: f"dispatcher {name}: plug-in {words} from mine 1.0: {why}" for name, (words, why) in BROKEN.items()
    }
    assert isinstance(DISPATCHERS.build("easy"), EasyDispatcher)
    with pytest.raises(
        PluginLoadError, match=r"dispatcher raises: plug-in mine_raises:X from mine 1.0: .*division by zero"
    ):
        DISPATCHERS.find("raises")


def test_broken_plugins_do_not_break_list(broken):
    result = CliRunner().invoke(app, ["dispatchers", "--json"])
    assert result.exit_code == 0
    names = [row["name"] for row in json.loads(result.stdout)["dispatchers"]]
    assert {"easy", "pcp20", "good"} <= set(names)
    assert not set(names) & (set(BROKEN) - {"easy"})
    assert len(result.stderr.splitlines()) == len(BROKEN)


def test_reports_name_declared_by_two_packages(site):
    install(site, "mine", {"mine_f": SMALLEST}, {GROUP: {"same": "mine_f:SmallestFirst"}})
    install(site, "yours", {"yours_f": SMALLEST}, {GROUP: {"same": "yours_f:SmallestFirst"}})
    with pytest.raises(PluginLoadError, match=r"same: plug-in mine_f:SmallestFirst from mine 1.0: yours 1.0 declares"):
        DISPATCHERS.find("same")


@pytest.mark.parametrize(
    ("module", "text", "error"),
    [
        (
            "mine_g",
            SMALLEST.replace("self.reservations = reservations", "1 / 0"),
            "ZeroDivisionError: division by zero",
        ),
        ("mine_h", "import cpsched\nclass SmallestFirst(cpsched.Dispatcher): pass", "TypeError: .*decide"),
    ],
)
def test_failing_constructor_is_one_line_error(site, module, text, error):
    install(site, "mine", {module: text})
    with pytest.raises(PluginLoadError, match=rf"{module}:SmallestFirst: cannot be built: {error}"):
        DISPATCHERS.build(f"{module}:SmallestFirst")


def test_finds_metric_of_plugin(site):
    text = """
        from cpsched import Metric

        WORST = Metric("worst_wait_s", "worst wait", "s", "max of W", "mine", "lower", lambda m: float(m.wait_s.max()))
"""
    install(site, "mine", {"mine_i": text}, {"cpsched.metrics": {"worst_wait_s": "mine_i:WORST"}})
    assert metrics.find_metric("worst_wait_s") is metrics.find_metric("mine_i:WORST")
    rows = json.loads(CliRunner().invoke(app, ["metrics", "--json"]).stdout)["metrics"]
    assert (rows[0]["name"], rows[-1]) == ("bsld", {
        "name": "worst_wait_s", "heading": "worst wait", "unit": "s", "formula": "max of W", "better": "lower",
        "source": "mine",
    })  # fmt: skip
