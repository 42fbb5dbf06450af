"""An adapter and a policy are found by the words of the settings file, as everything else is."""

import sys

import pytest

from cpsched_bridge.adapters import mock, slurm
from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program.assembly import adapter_of, connect, policy_of
from cpsched_bridge.settings import PolicySettings, Settings
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


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    install(tmp_path, "mine", {"mine_site": ADAPTER}, {"cpsched.adapters": {"mine": "mine_site", "gone": "gone_site"}})
    yield
    sys.modules.pop("mine_site", None)


def test_the_projects_own_are_found_by_name():
    assert (adapter_of("mock"), adapter_of("slurm")) == (mock, slurm)


@pytest.mark.parametrize("words", ["mine", "mine_site:Here"])
def test_a_plug_in_is_connected_with_its_options(site, words):
    settings = Settings.model_validate({"adapter": words, "options": {"size": 3}})
    assert connect(settings) == ("a backend", 3)
    with pytest.raises(SettingsError, match=r"bridge.yaml:1: options.size: x: Input should be"):
        connect(settings.model_copy(update={"options": {"size": "x"}}), "bridge.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("slum", r"bridge.yaml: unknown adapter 'slum'; known: gone, mine, mock, slurm; did you mean 'slurm'\?$"),
        ("gone", r"bridge.yaml: adapter gone_site: gone_site cannot be imported: No module named 'gone_site'"),
        ("mine_site:Section", r"bridge.yaml: adapter mine_site:Section: has no Options and no connect$"),
        ("mine_site:Here.connect", r"bridge.yaml: adapter mine_site:Here.connect: has no Options and no connect$"),
    ],
)
def test_what_is_no_adapter_is_one_line(site, words, message):
    with pytest.raises(SettingsError, match=message):
        connect(Settings(adapter=words), "bridge.yaml")


def test_the_policy_of_the_settings_is_built_with_the_files_that_it_names(tmp_path):
    (tmp_path / "waits.json").write_text('{"parallel": 600}')
    settings = PolicySettings(
        dispatcher="prb", dispatcher_settings={"ewt_file": str(tmp_path / "waits.json")}, overrun="double"
    )
    policy = policy_of(settings.spec())
    assert policy.dispatcher.expected_waits.of("parallel") == 600
    assert policy.overrun == "double"
