"""Which mode a bridge is in, and what keeps it paused: a person, its own doubt, trouble that passes."""

import pytest

from cpsched_bridge.cycle.mode import ModeSwitch
from cpsched_bridge.store.instance import PauseFile


@pytest.fixture
def pause(tmp_path):
    return PauseFile(tmp_path / "paused")


@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("trouble", ["no heartbeat", None])
def test_control_is_paused_by_a_person_or_by_trouble_and_shadow_by_neither(pause, paused, trouble):
    if paused:
        pause.pause("maintenance")
    control, shadow = (ModeSwitch(mode, pause, lambda: trouble) for mode in ("control", "shadow"))
    reason = "maintenance" if paused else trouble
    assert control.reason() == reason, "the person's word counts first"
    assert control.present() == ("control" if reason is None else "paused")
    assert shadow.present() == "shadow"


def test_without_anything_else_there_is_no_trouble(pause):
    assert ModeSwitch("control", pause).reason() is None


def test_a_change_is_one_against_what_was_asked_about_before(pause):
    switch = ModeSwitch("control", pause)
    asked = [switch.changed(mode) for mode in ("control", "control", "paused", "paused", "control", "shadow")]
    assert asked == [True, False, True, False, True, True]


def test_a_bridge_that_stands_down_is_paused_on_disk_and_until_it_is_resumed(pause):
    switch = ModeSwitch("control", pause, lambda: None)
    switch.stand_down("too much went wrong")
    assert (switch.present(), pause.reason()) == ("paused", "too much went wrong")
    pause.resume()
    switch.write()
    assert (switch.present(), pause.reason()) == ("control", None), "nothing is written a second time"


def test_a_bridge_that_stands_down_on_a_full_disk_is_paused_until_the_disk_takes_the_word(pause, monkeypatch):
    switch = ModeSwitch("control", pause, lambda: "no heartbeat")

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(PauseFile, "pause", lambda self, why: full(why))
        with pytest.raises(OSError, match="No space left"):
            switch.stand_down("too much went wrong")
        assert (switch.reason(), pause.reason()) == ("too much went wrong", None)
        with pytest.raises(OSError, match="No space left"):
            switch.write()
    switch.write()
    assert pause.reason() == "too much went wrong"
    pause.resume()
    assert switch.reason() == "no heartbeat"
