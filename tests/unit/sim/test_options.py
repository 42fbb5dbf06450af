"""Options that are declared in groups."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from cpsched_sim.cli.options import expand_option_groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Food:
    salt: Annotated[int, typer.Option(min=0)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Soup(Food):
    name: Annotated[str, typer.Argument()]
    hot: Annotated[bool, typer.Option("--hot")] = False


def told(*words):
    app, given = typer.Typer(), []

    @app.command()
    @expand_option_groups
    def serve(*, guests: Annotated[int, typer.Option()] = 2, soup: Soup) -> None:
        given.append((guests, soup))

    return CliRunner().invoke(app, words), given, app


def test_group_becomes_options_and_returns_one_value():
    ended, given, _ = told("pea", "--hot", "--salt", "3")
    assert (ended.exit_code, given) == (0, [(2, Soup(name="pea", hot=True, salt=3))])


def test_group_options_have_defaults_and_bounds():
    assert told("pea")[1] == [(2, Soup(name="pea"))]
    assert [told(*words)[0].exit_code for words in ((), ("pea", "--salt", "-1"), ("pea", "--guests", "many"))] == [
        2
    ] * 3


def test_subclass_options_precede_base_options():
    command = typer.main.get_command(told()[2])
    assert [parameter.name for parameter in command.params][:4] == ["guests", "name", "hot", "salt"]
