"""The judge finds each kind of wrong in a log that is right but for that."""

from collections import Counter

import pytest

from tests.pbs.judge import Judge
from tests.pbs.server import Server, words_of

VNODES = {name: vnode.has for name, vnode in Server.of().vnodes.items()}
RACKS = {name: vnode.rack for name, vnode in Server.of().vnodes.items()}


def a_log(*orders):
    """What is written where jobs are started in the order given, each as (what it asks for, where it is put)."""
    server = Server.of()
    for ask, where in orders:
        server.run(server.submit(runs_s=5, **{"select": ask} if isinstance(ask, str) else ask), where)
    server.tick(30)
    return server


def test_a_log_in_which_all_is_right():
    server = a_log(("1:ncpus=4", "(vm[0]:ncpus=4)"), ("2:ncpus=2", "(vm[1]:ncpus=2)+(vm[2]:ncpus=2)"))
    judge = Judge(VNODES).read(server.log)
    assert judge.once(["0.vm", "1.vm"]) == []
    assert (judge.starts, judge.ends) == (Counter({"0.vm": 1, "1.vm": 1}),) * 2


@pytest.mark.parametrize(
    ("orders", "wrong"),
    [
        ([("1:ncpus=3", "(vm[0]:ncpus=3)")] * 2, "starts on vm[0], which has no room"),
        ([("1:ncpus=3", "(vm[0]:ncpus=1)")], "asked for 1:ncpus=3, and starts with (vm[0]:ncpus=1)"),
        ([("2:ncpus=1", "(vm[0]:ncpus=1)")], "was started in a way that its host refused"),
        ([({"select": "2:ncpus=1", "place": "vscatter"}, "(vm[0]:ncpus=1)+(vm[0]:ncpus=1)")], "is to be scattered"),
        ([({"place": "excl"}, "(vm[0]:ncpus=1)"), ("1:ncpus=1", "(vm[0]:ncpus=1)")], None),
    ],
)
def test_a_start_that_is_wrong(orders, wrong):
    if wrong is None:
        with pytest.raises(Exception, match="temporarily unavailable"):
            a_log(*orders)
        return
    found = Judge(VNODES).read(a_log(*orders).log).once(["0.vm"])
    assert any(wrong in each for each in found), found


def test_a_vnode_that_a_job_has_alone():
    server = a_log(({"place": "excl"}, "(vm[0]:ncpus=1)"), ("1:ncpus=1", "(vm[1]:ncpus=1)"))
    log = [line.replace("(vm[1]", "(vm[0]") for line in server.log]
    assert "has alone" in Judge(VNODES).read(log).wrongs[0]


def test_chunks_of_one_group():
    grouped = {"select": "2:ncpus=1", "place": "free:group=rack"}
    together, apart = (
        a_log(
            (grouped, f"(vm[0]:ncpus=1)+({other}:ncpus=1)"),
            ({"select": "2:ncpus=1"}, "(vm[1]:ncpus=1)+(vm[2]:ncpus=1)"),
        )
        for other in ("vm[1]", "vm[2]")
    )
    assert Judge(VNODES, RACKS).read(together.log).wrongs == []
    (wrong,) = Judge(VNODES, RACKS).read(apart.log).wrongs
    assert "0.vm is to be in one group" in wrong


def test_starts_and_ends_are_counted():
    server = a_log(("1:ncpus=1", "(vm[0]:ncpus=1)"))
    start = next(line for line in server.log if ";S;" in line)
    assert "starts while it runs" in Judge(VNODES).read([start, start]).wrongs[0]
    assert Judge(VNODES).read([start]).once(["0.vm", "9.vm"]) == [
        "0.vm began 1 times and ended 0 times, not 1 and 1", "9.vm began 0 times and ended 0 times, not 1 and 1",
    ]  # fmt: skip
    again = Judge(VNODES).read(server.log[1:]).read(server.log[1:])
    assert again.once(["0.vm"]) == ["0.vm began 2 times and ended 2 times, not 1 and 1"]


def test_a_requeued_job_is_to_begin_once_more():
    server = Server.of()
    job = server.submit(runs_s=5)
    for _ in range(2):
        server.run(job, words_of((("vm[0]", Counter(ncpus=1)),)))
        server.tick(2)
        if not server.jobs[job].requeues:
            server.requeue(job)
    server.tick(9)
    judge = Judge(VNODES).read(server.log)
    assert (judge.once([job]), judge.starts[job]) == ([], 2)
