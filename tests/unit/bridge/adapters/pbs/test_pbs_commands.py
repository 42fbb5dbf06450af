"""The exact commands that PBS receives, and the arguments that no command accepts."""

from collections.abc import Callable, Sequence

import pytest

from cpsched_bridge.adapters.pbs.transport.pbs_commands import PbsCommands
from cpsched_bridge.errors import CommandRefused


class Programs:
    """Notes what it is to run."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []

    def run_command(self, command: Sequence[str], within_s: float | None = None) -> None:
        self.sent.append(list(command))

    def run_commands(self, commands: Sequence[Sequence[str]], within_s: float | None = None) -> list[None]:
        self.sent += map(list, commands)
        return [None] * len(commands)

    def run_directives(self, directives: Sequence[str]) -> str:
        self.sent.append(list(directives))
        return "Server vm\n    scheduling = True\n"


@pytest.mark.parametrize(
    ("tell", "command"),
    [
        (lambda to: to.run_jobs({"7.vm": "(v[0]:ncpus=2:mem=1gb)+(v1:ncpus=1)"}, 5.0),
         ["qrun", "-H", "(v[0]:ncpus=2:mem=1gb)+(v1:ncpus=1)", "7.vm"]),
        (lambda to: to.close_queue("work"), ["set queue work started = False", "list sched"]),
        (lambda to: to.open_queue("work"), ["set queue work started = True", "list server scheduling"]),
        (lambda to: to.trigger_scheduling(), ["qmgr", "-c", "set server scheduling = True"]),
        (lambda to: to.move("3[].vm", "left"), ["qmove", "left", "3[].vm"]),
        (lambda to: to.set_boost_points(["1.vm", "2.vm"], "points", -3, 5.0), ["qalter", "-l", "points=-3", "1.vm", "2.vm"]),  # noqa: E501
        (lambda to: to.set_walltime("1.vm", 90, 5.0), ["qalter", "-l", "walltime=90", "1.vm"]),
        (lambda to: to.write_lease("claim", "0aff"), ["qmgr", "-c", 'set server resources_available.claim = "0aff"']),
    ],
)  # fmt: skip
def test_sends_exact_command(tell: Callable[[PbsCommands], None], command: list[str]) -> None:
    programs = Programs()
    tell(PbsCommands(programs))  # type: ignore[arg-type]
    assert programs.sent == [command]


@pytest.mark.parametrize(
    "tell",
    [
        lambda to: to.close_queue("work started = True, server"),
        lambda to: to.open_queue("work\nset server scheduling = False"),
        lambda to: to.move("-1", "left"),
        lambda to: to.move("1.vm", "left\nwork"),
        lambda to: to.set_boost_points(["1.vm", "-W"], "points", 3, 5.0),
        lambda to: to.set_boost_points(["1.vm"], "points=9,walltime", 3, 5.0),
        lambda to: to.set_walltime("1 2", 90, 5.0),
        lambda to: to.write_lease("claim", '0aff"'),
    ],
)
def test_refuses_argument_of_several_words(tell: Callable[[PbsCommands], None]) -> None:
    programs = Programs()
    with pytest.raises(CommandRefused, match=r": contains characters that cannot be sent to PBS$"):
        tell(PbsCommands(programs))  # type: ignore[arg-type]
    assert programs.sent == []


def test_refuses_each_job_whose_start_is_not_one_command() -> None:
    programs = Programs()
    starts = {"7.vm; qdel 8": "(v0:ncpus=2)", "7.vm": "(v0:ncpus=2) -x", "8.vm": "(v0:ncpus=2)"}
    errors = PbsCommands(programs).run_jobs(starts, 5.0)  # type: ignore[arg-type]
    assert {job for job, error in errors.items() if error is not None} == {"7.vm; qdel 8", "7.vm"}
    assert programs.sent == [["qrun", "-H", "(v0:ncpus=2)", "8.vm"]]
