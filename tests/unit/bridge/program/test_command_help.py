"""Every command's help has a working example and exit codes, and shells complete names."""

import shlex
from itertools import takewhile

import pytest

from cpsched import metrics
from cpsched.errors import CpschedError
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.program.command_help import EXAMPLES, EXIT_CODES, FAILURE_MEANINGS, HELP_GROUPS, find_exit_codes
from cpsched_sim.clairvoyant_policies import SIMULATION_REGISTRIES
from cpsched_sim.cli.options import NAMES
from cpsched_sim.errors import SimulationError
from tests.fuzz.command_line import invoke, program
from tests.unit.sim.test_command_conventions import commands

COMMANDS = [" ".join(path) for path in commands(program())]
GROUPS = {name for name, command in program().commands.items() if hasattr(command, "commands")}


def parsed(words):
    """The name of the command in a command line, whose options and arguments are parsed and not used."""
    context = program().make_context("cpsched", words)
    path = []
    while hasattr(context.command, "commands"):
        given = [*context._protected_args, *context.args]  # noqa: SLF001  # as click itself invokes a group
        name, command, rest = context.command.resolve_command(context, given)
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(path)


def test_only_existing_commands_have_examples():
    assert sorted(EXAMPLES) == sorted({*COMMANDS} - GROUPS)
    assert not {*FAILURE_MEANINGS} - {*EXAMPLES}


@pytest.mark.parametrize(("command", "example"), EXAMPLES.items())
def test_example_parses_as_its_command(command, example, capsys):
    program_name, *words = takewhile(">".__ne__, shlex.split(example))
    assert (program_name, parsed(words)) == ("cpsched", command)
    assert capsys.readouterr().err == ""  # no former name


@pytest.mark.parametrize("command", ["doctor", "study verify", "whatif run", ""])
def test_help_ends_with_example_and_exit_codes(command):
    shown = [line.strip() for line in invoke(*command.split(), "--help").stdout.splitlines()]
    codes = find_exit_codes(command) if command else EXIT_CODES
    at = shown.index("Exit codes:")
    assert shown[at + 1 : at + 1 + len(codes)] == [f"{code:<4} {meaning}" for code, meaning in codes.items()]
    assert (3 in codes) == (command in ("whatif run", ""))
    if command:
        assert shown[at - 3] == "Example:" or shown[at - 4] == "Example:"


def test_lists_exit_code_of_each_error():
    def below(kind):
        return {kind, *(other for each in kind.__subclasses__() for other in below(each))}

    assert {SimulationError, BridgeError} < below(CpschedError)
    assert {getattr(kind, "exit_code", 2) for kind in below(CpschedError)} <= {*EXIT_CODES}


def test_completes_names_of_catalogues():
    known = (*SIMULATION_REGISTRIES, metrics.known_metrics())
    own = {each.group: sorted({*each.names()} - {plugin.name for plugin in each.plugins()}) for each in known}
    assert {group: names.split() for group, names in NAMES.items()} == own


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("study ", {"run", "verify", "example"}),
        ("simulate x --dispatcher easy-", {"easy-sjbf"}),
        ("compare x -d easy,look", {"easy,lookahead"}),
        ("gantt x -p q", {"quantile"}),
        ("accuracy x --predictor la", {"last-two"}),
        ("simulate x --metric mean_w", {"mean_wait_s"}),
        ("accuracy start-times x --from-j", {"--from-job"}),
        (next(iter(HELP_GROUPS["Administer"].split()))[:3], {"doctor"}),
    ],
)
def test_shells_complete_commands_options_and_names(monkeypatch, typed, offered):
    words = f"cpsched {typed}"
    monkeypatch.setenv("_CPSCHED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    ended = invoke()
    assert (set(ended.stdout.split()), ended.stderr) == (offered, "")
