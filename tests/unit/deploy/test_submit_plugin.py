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

BRIDGE_ONLY = "{ bridge_uid = 2100 }"
DELAYING = "{ bridge_uid = 2100, begin_delay_s = 120 }"
GPU_AND_FAT = "{ bridge_uid = 2100, partitions = { 'gpu', 'fat' } }"
HELD = {"priority": 0, "admin_comment": WAIT}
MANAGED = {"admin_comment": WAIT, "priority": 0}
MARKS = ["bridge:wait", "bridge:user-held", "bridge:admin-held", "bridge:asked(n1)", "bridge:pinned()"]
MARKS += ["bridge:begin(0)"]
LONGEST = "n" * 384
"""The longest node list that can be recorded."""


@pytest.fixture
def plugin() -> SubmitPlugin:
    return SubmitPlugin()


# Submission

SUBMISSIONS: list[tuple[str | None, dict[str, object], dict[str, object]]] = [
    # Slurm does not test the request of a held job, and rejects no job that can never run. So a new job is delayed.
    (DELAYING, {}, {"begin_time": NOW_S + 120, "comment": "bridge:begin(0)", "admin_comment": WAIT}),
    (DELAYING, {"begin_time": 0, "comment": "mine"},
     {"begin_time": NOW_S + 120, "comment": "bridge:begin(0) mine", "admin_comment": WAIT}),
    (DELAYING, {"begin_time": NOW_S + 50},
     {"begin_time": NOW_S + 120, "comment": "bridge:begin(1050)", "admin_comment": WAIT}),
    (DELAYING, {"begin_time": 5_000_000_000}, {"comment": "bridge:begin(5000000000)", "admin_comment": WAIT}),
    (DELAYING, {"priority": 0}, {"comment": "bridge:user-held", "admin_comment": WAIT}),
    # Without a delay, it is held.
    (BRIDGE_ONLY, {}, HELD),
    (BRIDGE_ONLY, {"priority": NO_VAL, "het_job_offset": NO_VAL, "immediate": 0, "req_nodes": "", "comment": ""}, HELD),
    (BRIDGE_ONLY, {"priority": 0}, HELD | {"comment": "bridge:user-held"}),
    (BRIDGE_ONLY, {"priority": 0, "comment": "my words"}, HELD | {"comment": "bridge:user-held my words"}),
    (BRIDGE_ONLY, {"priority": 50}, HELD),
    (BRIDGE_ONLY, {"immediate": 0}, HELD),
    (BRIDGE_ONLY, {"uid": ROOT}, HELD),
    (BRIDGE_ONLY, {"uid": ROOT, "priority": 0}, HELD | {"comment": "bridge:user-held"}),
    (BRIDGE_ONLY, {"uid": ROOT, "priority": NO_VAL}, HELD),
    # Without settings, the bridge's user is not known. Its hold would look like an administrator's.
    (None, {"uid": BRIDGE}, HELD),
    # Requested nodes are recorded, if they can be.
    (BRIDGE_ONLY, {"req_nodes": "n[1-2],m-3", "comment": "mine"},
     HELD | {"comment": "bridge:asked(n[1-2],m-3) mine"}),
    (BRIDGE_ONLY, {"req_nodes": LONGEST}, HELD | {"comment": f"bridge:asked({LONGEST})"}),
    *((BRIDGE_ONLY, {"req_nodes": nodes}, {})
      for nodes in (LONGEST + "n", "n1)", "n1 n2", "n1\nrelease 5", "n(1", "n1\x00", "n1;", "ä1")),
    # Left to Slurm
    *((BRIDGE_ONLY, asked, {})
      for asked in ({"het_job_offset": 0}, {"het_job_offset": 1}, {"cron_job": True}, {"immediate": 1},
                    {"uid": ROOT, "priority": 50}, {"uid": BRIDGE})),
    # Settings
    (GPU_AND_FAT, {"partition": "gpu"}, HELD),
    (GPU_AND_FAT, {"partition": "main,gpu"}, HELD),
    *((GPU_AND_FAT, asked, {}) for asked in ({"partition": "main"}, {}, {"partition": "gpus"}, {"partition": ""})),
    (GPU_AND_FAT, {"partitions": {"main": {"flag_default": 0}, "gpu": {"flag_default": 1}}}, HELD),
    (GPU_AND_FAT, {"partitions": {"gpu": {"flag_default": 0}}}, {}),
    *(("{ exempt_interactive = true }", asked, {}) for asked in ({}, {"script": ""})),
    ("{ exempt_interactive = true }", {"script": "#!/bin/sh"}, HELD),
    *(("{ exempt_interactive = false }", asked, HELD) for asked in ({}, {"script": ""}, {"script": "#!/bin/sh"})),
    # Words that are no marks stay, except for control characters and repeated blanks. An empty text would not be set,
    # and the marks would stay, so a comment of marks becomes a blank.
    *((BRIDGE_ONLY, {"comment": words}, HELD) for words in ("cambridge: part 2", "bridge", "bridge:", "a\xff")),
    (BRIDGE_ONLY, {"comment": "the bridge:waits"}, HELD | {"comment": "the"}),
    (BRIDGE_ONLY, {"comment": "üñí  çödé"}, HELD | {"comment": "üñí çödé"}),
    (BRIDGE_ONLY, {"comment": "a\nb\tc\x1cd\x7f"}, HELD | {"comment": "a b c d"}),
    (BRIDGE_ONLY, {"comment": "bridge:wait"}, HELD | {"comment": " "}),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "asked", "changes"), SUBMISSIONS)
def test_submission(settings: str | None, asked: dict[str, object], changes: dict[str, object]) -> None:
    fields = {name: value for name, value in asked.items() if name not in ("uid", "partitions")}
    assert SubmitPlugin(settings).submit(**asked) == fields | changes  # type: ignore[arg-type]


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


def test_disabled_plugin_holds_nothing_but_guards_comments(plugin: SubmitPlugin) -> None:
    plugin.off = True
    job = plugin.submit(comment="a bridge:wait b", req_nodes="n1")
    assert job == {"comment": "bridge:asked(n1) a b", "req_nodes": "n1"}
    assert plugin.modify(ALICE, MANAGED, priority=RELEASE) == {"priority": RELEASE}


def test_kill_switch_file_is_configurable() -> None:
    plugin = SubmitPlugin(settings="{ off_file = '/elsewhere.off' }")
    plugin.off = True
    assert plugin.submit() == {}


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


def test_marks_always_fit_in_comment(plugin: SubmitPlugin) -> None:
    """Slurm refuses a comment of more than 1,024 bytes, and with it the hold: the end of the user's text goes."""
    for size in (990, 1000, 1024):
        record = {**MANAGED, "comment": "x" * size}
        for uid, word in ((ROOT, "bridge:admin-held"), (ALICE, "bridge:user-held"), (BRIDGE, WAIT)):
            change = plugin.modify(uid, record, priority=0)
            assert change["comment"].startswith(word + " xxx")
            assert len(change["comment"]) <= 1024
    full = {**MANAGED, "comment": "bridge:asked(" + "n" * 384 + ") " + "x" * 600}
    change = plugin.modify(BRIDGE, full, priority=0, req_nodes="n2")
    assert {"bridge:wait", "bridge:asked(" + "n" * 384 + ")", "bridge:pinned(" + "n" * 384 + ")"} <= set(
        change["comment"].split(" ")
    )
    assert len(change["comment"]) <= 1024


def test_shortened_comment_ends_with_whole_character(plugin: SubmitPlugin) -> None:
    for size in range(600, 604):
        text = "x" * (size % 4) + "\xc3\xa4" * 510
        change = plugin.modify(ROOT, {**MANAGED, "comment": text[:1024]}, priority=0)
        change["comment"].encode("latin-1").decode("utf-8")


# Changes

ADMIN_HELD, ADMIN_AND_USER = "bridge:admin-held", "bridge:user-held bridge:admin-held"
CANNOT_RELEASE = "held by its owner or an administrator; the bridge cannot release it"
WAITS = "this job waits for the cluster's scheduler, which will start it"
UNRECORDABLE = "this node list is too long to be recorded for the cluster's scheduler; request a shorter list"
FULL = "x" * (1024 - len("bridge:admin-held "))


def held(comment: str, **facts: object) -> dict[str, object]:
    return {**MANAGED, "comment": comment, **facts}


def row(uid: int, record: dict[str, object], outcome: dict[str, object] | str, **wanted: object) -> tuple[object, ...]:
    """A change of a job by a user, and what becomes of it, or the words to the user if it is refused."""
    return uid, record, wanted, outcome


CHANGES = [
    # Users cannot remove marks. Administrators and the bridge write comments unchanged.
    *(row(user, held("bridge:admin-held bridge:pinned(n1) old"),
          {"comment": "bridge:admin-held bridge:pinned(n1)" + stored}, comment=text)
      for user in (ALICE, BOB) for text, stored in (("", ""), (" ", ""), ("new", " new"), ("bridge:wait", ""))),
    *(row(ALICE, held(comment), {"comment": comment}, comment=f"{words}bridge:wait")
      for comment, words in ((" ", ""), ("old", "old "), ("bridge:admin-held", ""), ("bridge:admin-held old", "old "))),
    *(row(user, held("bridge:admin-held old"), {"comment": "bridge:wait x"}, comment="bridge:wait x")
      for user in (ROOT, BRIDGE)),
    row(ROOT, held(FULL), {"priority": 0, "comment": "bridge:admin-held " + FULL}, priority=0),
    # Only requested fields change.
    *(row(user, held("bridge:user-held  odd   blanks"), {"time_limit": 5, "priority": NO_VAL}, time_limit=5,
          priority=NO_VAL) for user in (ALICE, BOB, BRIDGE, ROOT)),
    *(row(user, {"priority": 5}, {"time_limit": 5}, time_limit=5) for user in (ALICE, BOB, BRIDGE, ROOT)),
    # A hold records its owner. Holds accumulate.
    *(row(user, record, {"priority": 0, "comment": mark}, priority=0)
      for record in (MANAGED, {**MANAGED, "priority": 7})
      for user, mark in ((ALICE, "bridge:user-held"), (BOB, ADMIN_HELD), (ROOT, ADMIN_HELD), (BRIDGE, WAIT))),
    row(ROOT, held("bridge:wait mine"), {"priority": 0, "comment": "bridge:wait bridge:admin-held mine"}, priority=0),
    row(ALICE, held("bridge:wait bridge:admin-held mine"),
        {"priority": 0, "comment": "bridge:wait bridge:admin-held bridge:user-held mine"}, priority=0),
    row(ROOT, held("bridge:wait bridge:admin-held bridge:user-held mine"), {"priority": 0}, priority=0),
    # Of jobs that are not managed, only the bridge's hold is recorded.
    *(row(user, {"priority": 5}, {"priority": 0}, priority=0) for user in (ALICE, BOB, ROOT)),
    row(BRIDGE, {"priority": 5}, {"priority": 0, "comment": WAIT}, priority=0),
    row(ROOT, {"priority": 0, "comment": WAIT}, {"priority": 0, "comment": "bridge:wait bridge:admin-held"},
        priority=0),
    row(BRIDGE, {"priority": 5, "user_id": BRIDGE}, {"priority": 0, "comment": WAIT}, priority=0),
    # The bridge releases jobs that wait for it, and no holds of others.
    row(BRIDGE, MANAGED, {"priority": RELEASE}, priority=RELEASE),
    row(BRIDGE, held("bridge:wait mine"), {"priority": RELEASE, "comment": "mine"}, priority=RELEASE),
    *(row(BRIDGE, held(f"bridge:wait {word} x", admin_comment=admin_comment), CANNOT_RELEASE, priority=RELEASE)
      for word in ("bridge:user-held", "bridge:admin-held") for admin_comment in (WAIT, "")),
    # Words that resemble marks have no effect: from before the plug-in was installed, or from an administrator.
    *(row(BRIDGE, held(form.format(word)), {"priority": RELEASE}, priority=RELEASE)
      for form in ("x{}", "{}x", "x{}x", "{}\xc2\xa0", "\xc2\xa0{}") for word in ADMIN_AND_USER.split()),
    *(row(BRIDGE, held(form.format(word)), {"req_nodes": "n3", "comment": "bridge:pinned()"}, req_nodes="n3")
      for form in ("x{}", "{}x", "x{}x", "{}\xc2\xa0", "\xc2\xa0{}")
      for word in ("bridge:asked(n9)", "bridge:pinned(n9)")),
    # The bridge pins and releases in one change.
    *(row(BRIDGE, held("bridge:asked(n9) mine"),
          {"partition": "", "req_nodes": wish.partition("/")[0], "priority": RELEASE,
           "comment": "bridge:asked(n9) bridge:pinned(n9) mine", "ntasks_per_node": 2, **count},
          partition=f"bridge:start/{wish}", ntasks_per_node=2)
      for wish, count in (
          ("n1", {}), ("n-1.x,n2", {}), ("n1,n2/2-3", {"min_nodes": 2, "max_nodes": 3}),
          ("n1//short-1", {"partition": "short-1"}),
          ("n1/1-1/short", {"min_nodes": 1, "max_nodes": 1, "partition": "short"}),
      )),
    *(row(uid, held(""), {"partition": wish}, partition=wish)
      for uid in (ALICE, ROOT) for wish in ("bridge:start/n1", "bridge:start/n1/1-1")),
    *(row(BRIDGE, held(""), {"partition": wish}, partition=wish)
      for wish in ("main", "bridge:start/", "bridge:start/n1/2", "bridge:start/n[1-2]", "bridge:start/n1 ")),
    row(BRIDGE, held("", priority=7), "is not held", partition="bridge:start/n1"),
    *(row(BRIDGE, held(comment), CANNOT_RELEASE, partition="bridge:start/n1")
      for comment in ("bridge:user-held", "bridge:admin-held")),
    # Owners release their own holds, after which the job waits for the bridge.
    *(row(ALICE, held(comment), WAITS, priority=RELEASE) for comment in ("", "mine", "bridge:wait mine")),
    row(ALICE, held("bridge:user-held mine"), {"priority": 0, "comment": "mine"}, priority=RELEASE),
    row(ALICE, held("bridge:wait bridge:user-held", restart_cnt=1), {"priority": 0, "comment": WAIT},
        priority=RELEASE),
    *(row(ALICE, held(comment, restart_cnt=restarts), "an administrator holds this job", priority=RELEASE)
      for comment in (ADMIN_HELD, ADMIN_AND_USER) for restarts in (0, 1)),
    # `scontrol requeuehold` does not pass here: Slurm lets the owner release such a job, unless an administrator did
    # that.
    row(ALICE, held("", restart_cnt=1), {"priority": RELEASE}, priority=RELEASE),
    row(ALICE, held("mine", restart_cnt=1), {"priority": RELEASE}, priority=RELEASE),
    row(ALICE, held("bridge:user-held", restart_cnt=1), {"priority": RELEASE, "comment": " "}, priority=RELEASE),
    # An administrator's release removes all holds.
    *(row(user, held(f"bridge:wait {ADMIN_AND_USER} bridge:asked(n1) x"),
          {"priority": RELEASE, "comment": "bridge:asked(n1) x"}, priority=RELEASE) for user in (ROOT, BOB)),
    row(ALICE, {"priority": 0}, {"priority": RELEASE}, priority=RELEASE),
    # The priority of a job that is not held is no release.
    *(row(user, held("bridge:user-held", priority=5), {"priority": 9}, priority=9) for user in (ALICE, BRIDGE, ROOT)),
    # A pin stores the node list of the owner, and is undone with it.
    row(BRIDGE, MANAGED, {"req_nodes": "n3", "comment": "bridge:pinned()"}, req_nodes="n3"),
    row(BRIDGE, held("bridge:asked(n1) x"), {"req_nodes": "n3", "comment": "bridge:asked(n1) bridge:pinned(n1) x"},
        req_nodes="n3"),
    *(row(BRIDGE, held("bridge:asked(n1) bridge:pinned(n1) x", req_nodes="n3"),
          {"req_nodes": back, "comment": "bridge:asked(n1) x"}, req_nodes=back) for back in ("n1", "")),
    row(BRIDGE, held("bridge:asked(n1) bridge:pinned(n1) x", req_nodes="n3"), {"req_nodes": "n4"}, req_nodes="n4"),
    row(BRIDGE, held("bridge:wait x"), {"req_nodes": "n2", "priority": RELEASE, "comment": "bridge:pinned() x"},
        req_nodes="n2", priority=RELEASE),
    # A node list of others is their request. It must be recordable if the job is managed.
    *(row(user, held("bridge:asked(n1) x"), {"req_nodes": "n2", "comment": "bridge:asked(n2) x"}, req_nodes="n2")
      for user in (ALICE, ROOT)),
    *(row(user, held("bridge:asked(n1) x"), {"req_nodes": "", "comment": "x"}, req_nodes="") for user in (ALICE, ROOT)),
    *(row(ALICE, record, outcome or {"req_nodes": nodes}, req_nodes=nodes)
      for nodes in (LONGEST + "n", "n1) bridge:admin-held", "n1\nrelease 7")
      for record, outcome in ((MANAGED, UNRECORDABLE), ({"priority": 1}, None))),
]  # fmt: skip


@pytest.mark.parametrize(("uid", "record", "wanted", "outcome"), CHANGES)
def test_change(
    plugin: SubmitPlugin,
    uid: int,
    record: dict[str, object],
    wanted: dict[str, object],
    outcome: dict[str, object] | str,
) -> None:
    changed = plugin.modify(uid, record, **wanted)
    assert (changed or plugin.told) == ([outcome] if isinstance(outcome, str) else outcome)


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
    assert {name: value for name, value in told.items() if name != "comment"} == change
    assert (plugin.written, plugin.modify(BRIDGE, record, partition=wish)) == ([("/run/cpsched/epoch", "30\n")], told)
    for earlier in ("29", "1"):
        assert plugin.modify(BRIDGE, record, partition=wish.replace("30", earlier)) is None
        again = SubmitPlugin(epoch="30")
        assert (again.modify(BRIDGE, record, partition=wish.replace("30", earlier)), again.written) == (None, [])
    assert plugin.modify(ALICE, record, partition="bridge:set:29") == {"partition": "bridge:set:29"}
    assert (plugin.modify(BRIDGE, record, partition="short"), len(plugin.written)) == ({"partition": "short"}, 1)


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
