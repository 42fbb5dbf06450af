"""job_submit.lua, branch by branch: which jobs are held, who may release them, and that marks cannot be forged."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("lupa", reason="the Lua interpreter of the development dependencies is not installed")

from tests.unit.deploy.submit_plugin import (
    ALICE,
    BOB,
    BRIDGE,
    NO_VAL,
    NOW_S,
    RELEASE,
    ROOT,
    WAIT,
    SubmitPlugin,
)

MANAGED = {"admin_comment": WAIT, "priority": 0}
MARKS = ["bridge:wait", "bridge:user-held", "bridge:admin-held", "bridge:asked(n1)", "bridge:pinned()"]
MARKS += ["bridge:begin(0)"]


@pytest.fixture
def plugin() -> SubmitPlugin:
    return SubmitPlugin()


# Submission


DELAYING = "{ bridge_uid = 2100, begin_delay_s = 120 }"


@pytest.mark.parametrize(
    ("asked", "begin_time", "comment"),
    [
        ({}, NOW_S + 120, "bridge:begin(0)"),
        ({"begin_time": 0, "comment": "mine"}, NOW_S + 120, "bridge:begin(0) mine"),
        ({"begin_time": NOW_S + 50}, NOW_S + 120, "bridge:begin(1050)"),
        ({"begin_time": 5_000_000_000}, 5_000_000_000, "bridge:begin(5000000000)"),
    ],
)
def test_new_job_is_delayed_so_that_slurm_tests_it(asked: dict[str, object], begin_time: int, comment: str) -> None:
    """Slurm does not test the request of a held job, and rejects no job that can never run."""
    job = SubmitPlugin(DELAYING).submit(**asked)
    assert job == {**asked, "begin_time": begin_time, "comment": comment, "admin_comment": WAIT}


def test_delays_200_jobs_of_a_user_and_holds_further_ones() -> None:
    """The bridge holds delayed jobs one by one, and Slurm would start a job that it cannot hold in time."""
    plugin = SubmitPlugin(DELAYING)
    jobs = [plugin.submit(ALICE) for _ in range(201)]
    assert [index for index, job in enumerate(jobs) if job.get("priority") == 0] == [200]
    assert "begin_time" in plugin.submit(BOB)
    assert plugin.submit(ROOT, owner=ALICE)["priority"] == 0
    plugin.now_s += 119
    assert plugin.submit(ALICE)["priority"] == 0
    plugin.now_s += 1
    assert "begin_time" in plugin.submit(ALICE)


def test_job_submitted_on_hold_is_not_delayed() -> None:
    job = SubmitPlugin(DELAYING).submit(priority=0)
    assert job == {"priority": 0, "comment": "bridge:user-held", "admin_comment": WAIT}


DELAYED = {"admin_comment": WAIT, "priority": 1, "comment": "bridge:begin(0) mine"}


@pytest.mark.parametrize(
    ("uid", "priority", "comment"),
    [
        (BRIDGE, 0, "bridge:wait mine"),
        (BRIDGE, RELEASE, "mine"),
        (ROOT, RELEASE, "mine"),
        (ROOT, 0, "bridge:admin-held mine"),
        (ALICE, 0, "bridge:user-held mine"),
    ],
)
@pytest.mark.parametrize(("begin", "begin_time"), [(0, NOW_S), (5000, 5000)])
def test_hold_or_release_ends_delay(uid: int, priority: int, comment: str, begin: int, begin_time: int) -> None:
    record = DELAYED | {"comment": f"bridge:begin({begin}) mine"}
    changed = SubmitPlugin(DELAYING).modify(uid, record, priority=priority, begin_time=0)
    assert changed == {"priority": priority, "begin_time": begin_time, "comment": comment}


def test_owner_cannot_end_delay() -> None:
    plugin = SubmitPlugin(DELAYING)
    assert plugin.modify(ALICE, DELAYED, priority=RELEASE, begin_time=0) is None
    assert plugin.told == ["this job waits for the cluster's scheduler, which will start it"]
    changed = plugin.modify(ALICE, DELAYED, begin_time=NOW_S)
    assert changed == {"begin_time": NOW_S + 120, "comment": "bridge:begin(1000) mine"}


def test_job_is_held_and_marked(plugin: SubmitPlugin) -> None:
    assert plugin.submit() == {"priority": 0, "admin_comment": WAIT}


def test_unset_values_do_not_count(plugin: SubmitPlugin) -> None:
    asked = {"priority": NO_VAL, "het_job_offset": NO_VAL, "immediate": 0, "req_nodes": "", "comment": ""}
    job = plugin.submit(**asked)
    assert (job["priority"], job["admin_comment"], job["comment"]) == (0, WAIT, "")


def test_records_hold_requested_by_owner(plugin: SubmitPlugin) -> None:
    assert plugin.submit(priority=0)["comment"] == "bridge:user-held"
    assert plugin.submit(priority=0, comment="my words")["comment"] == "bridge:user-held my words"


def test_records_node_list_requested_by_owner(plugin: SubmitPlugin) -> None:
    job = plugin.submit(req_nodes="n[1-2],m-3", comment="mine")
    assert (job["comment"], job["priority"]) == ("bridge:asked(n[1-2],m-3) mine", 0)


@pytest.mark.parametrize(("length", "managed"), [(384, True), (385, False)])
def test_leaves_job_whose_node_list_cannot_be_recorded(plugin: SubmitPlugin, length: int, managed: bool) -> None:
    job = plugin.submit(req_nodes="n" * length)
    assert ("admin_comment" in job, "comment" in job) == (managed, managed)


@pytest.mark.parametrize("nodes", ["n1)", "n1 n2", "n1\nrelease 5", "n(1", "n1\x00", "n1;", "ä1"])
def test_never_records_node_list_with_other_characters(plugin: SubmitPlugin, nodes: str) -> None:
    job = plugin.submit(req_nodes=nodes)
    assert "comment" not in job
    assert "admin_comment" not in job


@pytest.mark.parametrize(
    "asked",
    [
        {"het_job_offset": 0},
        {"het_job_offset": 1},
        {"cron_job": True},
        {"immediate": 1},
        {"uid": ROOT, "priority": 50},
        {"uid": BRIDGE},
    ],
    ids=str,
)
def test_leaves_job_to_slurm(plugin: SubmitPlugin, asked: dict[str, int]) -> None:
    job = plugin.submit(**asked)
    assert "admin_comment" not in job
    assert job.get("priority") == asked.get("priority")


@pytest.mark.parametrize(
    "asked",
    [
        {"uid": ROOT},
        {"uid": ROOT, "priority": 0},
        {"uid": ROOT, "priority": NO_VAL},
        {"priority": 50},
        {"immediate": 0},
    ],
    ids=str,
)
def test_manages_job(plugin: SubmitPlugin, asked: dict[str, int]) -> None:
    job = plugin.submit(**asked)
    assert (job["priority"], job["admin_comment"]) == (0, WAIT)


def test_without_settings_all_users_are_equal() -> None:
    """Also the bridge's, whose identity is not configured. Its hold would look like an administrator's."""
    assert SubmitPlugin(settings=None).submit(uid=BRIDGE) == {"priority": 0, "admin_comment": WAIT}


def test_disabled_plugin_holds_nothing_but_guards_comments(plugin: SubmitPlugin) -> None:
    plugin.off = True
    job = plugin.submit(comment="a bridge:wait b", req_nodes="n1")
    assert job == {"comment": "bridge:asked(n1) a b", "req_nodes": "n1"}


@pytest.mark.parametrize(
    ("partition", "managed"),
    [("gpu", True), ("main", False), (None, False), ("main,gpu", True), ("gpus", False), ("", False)],
)
def test_manages_only_configured_partitions(partition: str | None, managed: bool) -> None:
    plugin = SubmitPlugin(settings="{ bridge_uid = 2100, partitions = { 'gpu', 'fat' } }")
    asked = {} if partition is None else {"partition": partition}
    assert ("admin_comment" in plugin.submit(**asked)) == managed


def test_job_without_partition_uses_default_one() -> None:
    plugin = SubmitPlugin(settings="{ partitions = { 'gpu' } }")
    default_gpu = {"main": {"flag_default": 0}, "gpu": {"flag_default": 1}}
    assert "admin_comment" in plugin.submit(partitions=default_gpu)
    assert "admin_comment" not in plugin.submit(partitions={"gpu": {"flag_default": 0}})


def test_kill_switch_file_is_configurable() -> None:
    plugin = SubmitPlugin(settings="{ off_file = '/elsewhere.off' }")
    plugin.off = True
    assert "admin_comment" not in plugin.submit()


# What users write

FORGERIES = [
    "{}",
    " {} ",
    "\xc2\xa0{}",  # a no-break space: Lua's blanks are not Python's
    "{}\xc2\xa0x",
    "\xe2\x80\x83{}\xe3\x80\x80",
    "\x1c{}\x1d",
    "\x85{}",
    "a\n{}\nb",
    "a\r\n{}\r\nb",
    "\t{}\x0b\x0c",
    "\x01{}\x7f",
    "\xff\xfe{}\xff",
    "x{}y",
    "\xe2\x80\x8b{}",
    "{0} {0} {0}",
]


@pytest.mark.parametrize("mark", [*MARKS, "BRIDGE:WAIT", "Bridge:Pinned(N1)"])
def test_no_user_text_can_be_taken_for_mark(plugin: SubmitPlugin, mark: str) -> None:
    for form, off in itertools.product(FORGERIES, (False, True)):
        text = form.format(mark)
        plugin.off = off
        stored = [plugin.submit(comment=text)["comment"]]
        stored += [plugin.modify(user, MANAGED, comment=text)["comment"] for user in (ALICE, BOB)]  # type: ignore[index]
        for comment in stored:
            assert "bridge:" not in comment.lower(), ascii(text)


@pytest.mark.parametrize("words", ["cambridge: part 2", "bridge", "bridge:", "the bridge:waits", "üñí  çödé", "a\xff"])
def test_keeps_other_words(plugin: SubmitPlugin, words: str) -> None:
    kept = plugin.submit(comment=words)["comment"]
    if "waits" in words:
        assert kept == "the"  # it contains one of our words
    else:
        assert kept.split(" ") == [word for word in words.split(" ") if word]


def test_control_characters_become_blanks(plugin: SubmitPlugin) -> None:
    assert plugin.submit(comment="a\nb\tc\x1cd\x7f")["comment"] == "a b c d"


def test_comment_of_marks_only_becomes_blank(plugin: SubmitPlugin) -> None:
    """An empty text would not be set, and the marks would stay: a blank is."""
    assert plugin.submit(comment="bridge:wait")["comment"] == " "


def test_users_cannot_remove_marks(plugin: SubmitPlugin) -> None:
    record = {**MANAGED, "comment": "bridge:admin-held bridge:pinned(n1) old"}
    for user in (ALICE, BOB):
        for text, stored in (("", ""), (" ", ""), ("new", " new"), ("bridge:wait", "")):
            change = plugin.modify(user, record, comment=text)
            assert change == {"comment": "bridge:admin-held bridge:pinned(n1)" + stored}


@pytest.mark.parametrize("comment", [" ", "old", "bridge:admin-held", "bridge:admin-held old"])
def test_unchanged_comment_adds_no_mark(plugin: SubmitPlugin, comment: str) -> None:
    words = "old " if "old" in comment else ""
    change = plugin.modify(ALICE, {**MANAGED, "comment": comment}, comment=f"{words}bridge:wait")
    assert change == {"comment": comment}


@pytest.mark.parametrize("user", [ROOT, BRIDGE])
def test_administrators_and_bridge_write_comments_unchanged(plugin: SubmitPlugin, user: int) -> None:
    record = {**MANAGED, "comment": "bridge:admin-held old"}
    assert plugin.modify(user, record, comment="bridge:wait x") == {"comment": "bridge:wait x"}


def test_marks_always_fit_in_comment(plugin: SubmitPlugin) -> None:
    """Slurm refuses a comment of more than 1,024 bytes, and with it the hold: the end of the user's text goes."""
    for size in (990, 1000, 1024):
        record = {**MANAGED, "comment": "x" * size}
        for uid, word in ((ROOT, "bridge:admin-held"), (ALICE, "bridge:user-held"), (BRIDGE, WAIT)):
            change = plugin.modify(uid, record, priority=0)
            assert change is not None
            assert change["comment"].startswith(word + " xxx")
            assert len(change["comment"]) <= 1024
    full = {**MANAGED, "comment": "bridge:asked(" + "n" * 384 + ") " + "x" * 600}
    change = plugin.modify(BRIDGE, full, priority=0, req_nodes="n2")
    assert change is not None
    assert {"bridge:wait", "bridge:asked(" + "n" * 384 + ")", "bridge:pinned(" + "n" * 384 + ")"} <= set(
        change["comment"].split(" ")
    )
    assert len(change["comment"]) <= 1024


def test_shortened_comment_ends_with_whole_character(plugin: SubmitPlugin) -> None:
    for size in range(600, 604):
        text = "x" * (size % 4) + "\xc3\xa4" * 510
        change = plugin.modify(ROOT, {**MANAGED, "comment": text[:1024]}, priority=0)
        assert change is not None
        change["comment"].encode("latin-1").decode("utf-8")


def test_comment_that_just_fits_is_not_shortened(plugin: SubmitPlugin) -> None:
    word = "bridge:admin-held "
    text = "x" * (1024 - len(word))
    assert plugin.modify(ROOT, {**MANAGED, "comment": text}, priority=0) == {"priority": 0, "comment": word + text}
    change = plugin.modify(ROOT, {**MANAGED, "comment": text + "x"}, priority=0)
    assert change is not None
    assert len(change["comment"]) < 1024


# Holds


def test_hold_records_its_owner(plugin: SubmitPlugin) -> None:
    free = {**MANAGED, "priority": 7}
    for record in (MANAGED, free):
        assert plugin.modify(ALICE, record, priority=0) == {"priority": 0, "comment": "bridge:user-held"}
        assert plugin.modify(BOB, record, priority=0) == {"priority": 0, "comment": "bridge:admin-held"}
        assert plugin.modify(ROOT, record, priority=0) == {"priority": 0, "comment": "bridge:admin-held"}
        assert plugin.modify(BRIDGE, record, priority=0) == {"priority": 0, "comment": WAIT}


def test_holds_accumulate(plugin: SubmitPlugin) -> None:
    record = {**MANAGED, "comment": "bridge:wait mine"}
    change = plugin.modify(ROOT, record, priority=0)
    assert change == {"priority": 0, "comment": "bridge:wait bridge:admin-held mine"}
    again = plugin.modify(ALICE, {**record, **change}, priority=0)
    assert again == {"priority": 0, "comment": "bridge:wait bridge:admin-held bridge:user-held mine"}
    assert plugin.modify(ROOT, {**record, **again}, priority=0) == {"priority": 0}


def test_records_only_bridge_hold_of_unmanaged_jobs(plugin: SubmitPlugin) -> None:
    for user in (ALICE, BOB, ROOT):
        assert plugin.modify(user, {"priority": 5}, priority=0) == {"priority": 0}
    held = plugin.modify(BRIDGE, {"priority": 5}, priority=0)
    assert held == {"priority": 0, "comment": WAIT}
    assert plugin.modify(ROOT, {"priority": 0, "comment": WAIT}, priority=0) == {
        "priority": 0,
        "comment": "bridge:wait bridge:admin-held",
    }


def test_own_job_of_bridge_user_is_held_by_bridge(plugin: SubmitPlugin) -> None:
    record = {"priority": 5, "user_id": BRIDGE}
    assert plugin.modify(BRIDGE, record, priority=0) == {"priority": 0, "comment": WAIT}


# Releases


def test_bridge_releases_jobs_waiting_for_it(plugin: SubmitPlugin) -> None:
    assert plugin.modify(BRIDGE, MANAGED, priority=RELEASE) == {"priority": RELEASE}
    own = {**MANAGED, "comment": "bridge:wait mine"}
    assert plugin.modify(BRIDGE, own, priority=RELEASE) == {"priority": RELEASE, "comment": "mine"}


@pytest.mark.parametrize("word", ["bridge:user-held", "bridge:admin-held"])
@pytest.mark.parametrize("admin_comment", [WAIT, ""])
def test_bridge_does_not_release_holds_of_others(plugin: SubmitPlugin, word: str, admin_comment: str) -> None:
    record = {"priority": 0, "admin_comment": admin_comment, "comment": f"bridge:wait {word} x"}
    assert plugin.modify(BRIDGE, record, priority=RELEASE) is None
    assert plugin.told == ["held by its owner or an administrator; the bridge cannot release it"]


@pytest.mark.parametrize("form", ["x{}", "{}x", "x{}x", "{}\xc2\xa0", "\xc2\xa0{}"], ids=ascii)
def test_words_resembling_marks_have_no_effect(plugin: SubmitPlugin, form: str) -> None:
    """In comments from before the plugin was installed, or written by an administrator."""
    for word in ("bridge:user-held", "bridge:admin-held"):
        assert plugin.modify(BRIDGE, {**MANAGED, "comment": form.format(word)}, priority=RELEASE) is not None
    for word in ("bridge:asked(n9)", "bridge:pinned(n9)"):
        change = plugin.modify(BRIDGE, {**MANAGED, "comment": form.format(word)}, req_nodes="n3")
        assert change == {"req_nodes": "n3", "comment": "bridge:pinned()"}


@pytest.mark.parametrize(
    ("wish", "count"),
    [
        ("n1", {}), ("n-1.x,n2", {}), ("n1,n2/2-3", {"min_nodes": 2, "max_nodes": 3}),
        ("n1//short-1", {"partition": "short-1"}),
        ("n1/1-1/short", {"min_nodes": 1, "max_nodes": 1, "partition": "short"}),
    ],
)  # fmt: skip
def test_bridge_pins_and_releases_in_one_change(plugin: SubmitPlugin, wish: str, count: dict[str, object]) -> None:
    record = {**MANAGED, "comment": "bridge:asked(n9) mine"}
    change = plugin.modify(BRIDGE, record, partition=f"bridge:start/{wish}", ntasks_per_node=2)
    assert change == {
        "partition": "",
        "req_nodes": wish.partition("/")[0],
        "priority": RELEASE,
        "comment": "bridge:asked(n9) bridge:pinned(n9) mine",
        "ntasks_per_node": 2,
        **count,
    }


@pytest.mark.parametrize(
    ("wish", "facts", "change"),
    [
        ("bridge:start:30/n1//short", {}, {"partition": "short", "req_nodes": "n1", "priority": RELEASE}),
        ("bridge:release:30", {}, {"partition": "", "priority": RELEASE}),
        ("bridge:set:30", {"priority": 7}, {"partition": ""}),
        ("bridge:set:30/main,short", {"priority": 7}, {"partition": "main,short"}),
    ],
)
def test_refuses_changes_of_an_earlier_epoch(wish: str, facts: dict[str, object], change: dict[str, object]) -> None:
    """It remembers the largest epoch over a restart. Changes without an epoch, and those of others, are not checked."""
    plugin = SubmitPlugin(epoch="29")
    record = {**MANAGED, "comment": None, **facts}
    told = plugin.modify(BRIDGE, record, partition=wish)
    assert told is not None
    assert {name: value for name, value in told.items() if name != "comment"} == change
    assert plugin.written == [("/run/cpsched/epoch", "30\n")]
    assert plugin.modify(BRIDGE, record, partition=wish) == told
    for earlier in ("29", "1"):
        assert plugin.modify(BRIDGE, record, partition=wish.replace("30", earlier)) is None
        again = SubmitPlugin(epoch="30")
        assert again.modify(BRIDGE, record, partition=wish.replace("30", earlier)) is None
        assert again.written == []
    assert plugin.modify(ALICE, record, partition="bridge:set:29") == {"partition": "bridge:set:29"}
    assert plugin.modify(BRIDGE, record, partition="short") == {"partition": "short"}
    assert len(plugin.written) == 1


@pytest.mark.parametrize("uid", [ALICE, ROOT])
@pytest.mark.parametrize("wish", ["bridge:start/n1", "bridge:start/n1/1-1"])
def test_start_partition_of_other_users_is_ordinary(plugin: SubmitPlugin, uid: int, wish: str) -> None:
    assert plugin.modify(uid, {**MANAGED, "comment": None}, partition=wish) == {"partition": wish}


@pytest.mark.parametrize(
    "wish", ["main", "bridge:start/", "bridge:start/n1/2", "bridge:start/n[1-2]", "bridge:start/n1 "]
)
def test_other_partition_is_no_start(plugin: SubmitPlugin, wish: str) -> None:
    assert plugin.modify(BRIDGE, {**MANAGED, "comment": None}, partition=wish) == {"partition": wish}


@pytest.mark.parametrize("facts", [{"priority": 7}, {"comment": "bridge:user-held"}, {"comment": "bridge:admin-held"}])
def test_refuses_start_of_job_not_held_for_bridge(plugin: SubmitPlugin, facts: dict[str, object]) -> None:
    assert plugin.modify(BRIDGE, {**MANAGED, **facts}, partition="bridge:start/n1") is None


@pytest.mark.parametrize(("script", "held"), [(None, False), ("", False), ("#!/bin/sh", True)])
@pytest.mark.parametrize("exempt", [True, False])
def test_site_may_exempt_jobs_without_script(exempt: bool, script: str | None, held: bool) -> None:
    plugin = SubmitPlugin(f"{{ bridge_uid = 2100, exempt_interactive = {str(exempt).lower()} }}")
    assert ("admin_comment" in plugin.submit(script=script)) == (held or not exempt)


def test_owner_cannot_release_job_waiting_for_bridge(plugin: SubmitPlugin) -> None:
    for comment in ("", "mine", "bridge:wait mine"):
        assert plugin.modify(ALICE, {**MANAGED, "comment": comment}, priority=RELEASE) is None
    assert "waits for the cluster's scheduler" in plugin.told[0]


def test_owner_release_of_own_hold_leaves_job_to_bridge(plugin: SubmitPlugin) -> None:
    record = {**MANAGED, "comment": "bridge:user-held mine"}
    assert plugin.modify(ALICE, record, priority=RELEASE) == {"priority": 0, "comment": "mine"}
    record = {**MANAGED, "comment": "bridge:wait bridge:user-held", "restart_cnt": 1}
    assert plugin.modify(ALICE, record, priority=RELEASE) == {"priority": 0, "comment": WAIT}


def test_owner_cannot_release_admin_hold(plugin: SubmitPlugin) -> None:
    for comment in ("bridge:admin-held", "bridge:user-held bridge:admin-held"):
        for restarts in (0, 1):
            record = {**MANAGED, "comment": comment, "restart_cnt": restarts}
            assert plugin.modify(ALICE, record, priority=RELEASE) is None
    assert plugin.told == ["an administrator holds this job"] * 4


def test_leaves_job_requeued_on_hold_to_slurm(plugin: SubmitPlugin) -> None:
    """`scontrol requeuehold` does not pass here: Slurm lets its owner release it, unless an administrator did that."""
    for comment, left in (("", None), ("mine", None), ("bridge:user-held", " ")):
        record = {**MANAGED, "comment": comment, "restart_cnt": 1}
        change = plugin.modify(ALICE, record, priority=RELEASE)
        assert change == ({"priority": RELEASE} if left is None else {"priority": RELEASE, "comment": left})


def test_disabled_plugin_lets_owner_release(plugin: SubmitPlugin) -> None:
    plugin.off = True
    assert plugin.modify(ALICE, MANAGED, priority=RELEASE) == {"priority": RELEASE}


@pytest.mark.parametrize("user", [ROOT, BOB])
def test_administrator_release_removes_all_hold_marks(plugin: SubmitPlugin, user: int) -> None:
    record = {**MANAGED, "comment": "bridge:wait bridge:user-held bridge:admin-held bridge:asked(n1) x"}
    change = plugin.modify(user, record, priority=RELEASE)
    assert change == {"priority": RELEASE, "comment": "bridge:asked(n1) x"}


def test_owner_release_of_unmanaged_job_is_unchanged(plugin: SubmitPlugin) -> None:
    assert plugin.modify(ALICE, {"priority": 0}, priority=RELEASE) == {"priority": RELEASE}


def test_priority_of_unheld_job_is_no_release(plugin: SubmitPlugin) -> None:
    record = {**MANAGED, "priority": 5, "comment": "bridge:user-held"}
    for user in (ALICE, BRIDGE, ROOT):
        assert plugin.modify(user, record, priority=9) == {"priority": 9}


# Node lists


def test_pin_stores_node_list_of_owner(plugin: SubmitPlugin) -> None:
    assert plugin.modify(BRIDGE, MANAGED, req_nodes="n3") == {"req_nodes": "n3", "comment": "bridge:pinned()"}
    asked = {**MANAGED, "comment": "bridge:asked(n1) x"}
    change = plugin.modify(BRIDGE, asked, req_nodes="n3")
    assert change == {"req_nodes": "n3", "comment": "bridge:asked(n1) bridge:pinned(n1) x"}
    for back in ("n1", ""):
        undone = plugin.modify(BRIDGE, {**asked, **change}, req_nodes=back)
        assert undone == {"req_nodes": back, "comment": "bridge:asked(n1) x"}
    assert plugin.modify(BRIDGE, {**asked, **change}, req_nodes="n4") == {"req_nodes": "n4"}


def test_start_is_one_change_with_both_marks(plugin: SubmitPlugin) -> None:
    record = {**MANAGED, "comment": "bridge:wait x"}
    change = plugin.modify(BRIDGE, record, req_nodes="n2", priority=RELEASE)
    assert change == {"req_nodes": "n2", "priority": RELEASE, "comment": "bridge:pinned() x"}


@pytest.mark.parametrize("user", [ALICE, ROOT])
def test_node_list_changed_by_others_is_their_request(plugin: SubmitPlugin, user: int) -> None:
    record = {**MANAGED, "comment": "bridge:asked(n1) x"}
    assert plugin.modify(user, record, req_nodes="n2") == {"req_nodes": "n2", "comment": "bridge:asked(n2) x"}
    assert plugin.modify(user, record, req_nodes="") == {"req_nodes": "", "comment": "x"}


def test_refuses_unrecordable_node_list_of_managed_job(plugin: SubmitPlugin) -> None:
    for nodes in ("n" * 385, "n1) bridge:admin-held", "n1\nrelease 7"):
        assert plugin.modify(ALICE, MANAGED, req_nodes=nodes) is None
        assert plugin.modify(ALICE, {"priority": 1}, req_nodes=nodes) == {"req_nodes": nodes}
    assert "too long to be recorded" in plugin.told[0]


def test_changes_only_requested_fields(plugin: SubmitPlugin) -> None:
    for user in (ALICE, BOB, BRIDGE, ROOT):
        record = {**MANAGED, "comment": "bridge:user-held  odd   blanks"}
        assert plugin.modify(user, record, time_limit=5, priority=NO_VAL) == {"time_limit": 5, "priority": NO_VAL}
        assert plugin.modify(user, {"priority": 5}, time_limit=5) == {"time_limit": 5}


# Waking a bridge


def test_wake_file_is_written_except_for_bridge_changes() -> None:
    plugin = SubmitPlugin('{ bridge_uid = 2100, wake_file = "/run/cpsched/wake" }')
    plugin.submit()
    plugin.modify(ALICE, MANAGED, time_limit=5)
    assert plugin.written == [("/run/cpsched/wake", "changed\n")] * 2
    plugin.modify(BRIDGE, MANAGED, priority=RELEASE)
    assert len(plugin.written) == 2, "a bridge that wakes itself would never rest"


def test_disabled_plugin_still_writes_wake_file(plugin: SubmitPlugin) -> None:
    woken = SubmitPlugin('{ wake_file = "/run/cpsched/wake" }')
    woken.off = True
    woken.submit()
    assert len(woken.written) == 1
    plugin.submit()
    assert plugin.written == [], "no wake file is configured"


def test_unwritable_wake_file_does_not_prevent_submission() -> None:
    plugin = SubmitPlugin('{ wake_file = "/nowhere/wake" }')
    plugin.writable = False
    assert plugin.submit() == {"priority": 0, "admin_comment": WAIT}
    assert plugin.modify(ALICE, MANAGED, time_limit=5) is not None
