"""What users call their jobs is shown as it is: never interpreted, never in the way of what is shown."""

import dataclasses

import pytest

from cpsched.dispatchers.easy import EasyDispatcher
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.ports import Check, Outcome
from cpsched_bridge.program import views
from cpsched_bridge.report import Happening
from cpsched_bridge.store.journal_reader import Aside
from tests.bridges import a_bridge
from tests.builders import a_job
from tests.fakes import FakeCluster

HOSTILE = {
    "markup": ("[red]", "[red]"),
    "a closing tag": ("[/]", "[/]"),
    "a broken tag": ("[/red", "[/red"),
    "a link": ("[link=file:///etc]x", "[link=file:///etc]x"),
    "an emoji": (":bomb:", ":bomb:"),
    "a terminal's commands": ("\x1b[2Jgone", r"\x1b[2Jgone"),
    "two lines": ("one\ntwo", r"one\ntwo"),
    "half a character": ("\udc80", r"\udc80"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lists_show_names_as_they_are(name, capsys):
    words, shown = HOSTILE[name]
    views.print_unsupported([Aside(1, "unsupported", words, words, words)])
    assert capsys.readouterr().out.splitlines()[-1].split() == [*shown.split()] * 3
    views.print_checks([Check(words, False, words, words)])
    assert capsys.readouterr().out.count(shown) == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_rounds_jobs_and_status_show_names_as_they_are(name, tmp_path, capsys):
    words, shown = HOSTILE[name]
    cluster = FakeCluster()
    cluster.submit(a_job(1, user=words, name=words, queue=words), a_job(2, per_unit=99, user=words))
    bridge = a_bridge(tmp_path, cluster, EasyDispatcher(), policy_spec=PolicySpec("easy", "walltime"))
    assert bridge.cycle().result == "ok"
    journal, ledger = bridge.journal, bridge.ledger
    journal.write_events(0.0, 1, [Happening("odd", words, 1)])
    record = dataclasses.replace(journal.read(1), mode=words, policy=PolicySpec(words, words))
    views.print_round(record, [("start", Outcome(1, "refused", words))], {words: 1.0})
    out = capsys.readouterr().out
    assert out.count(shown) >= 6
    views.print_rounds(journal.lines())
    views.print_why("1", journal, ledger)
    views.print_status(bridge.settings, words, journal, ledger)
    assert f"paused: {shown}" in capsys.readouterr().out
    assert views.print_replays(journal, [1])
