from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.adapters.pbs.pbs_objects import UNREADABLE_KEY, UnquotedValue
from cpsched_bridge.adapters.pbs.transport import pbs_output_parsing
from cpsched_bridge.adapters.pbs.transport.pbs_output_parsing import parse_pbs_json
from cpsched_bridge.errors import BackendUnavailable
from cpsched_sim.testing.hypothesis_strategies import scaled_example_settings

HEAD = '{\n    "timestamp":1,\n    "pbs_version":"20.0.1",\n    "pbs_server":"vm",\n    "Jobs":{\n'


def old(*jobs: tuple[str, list[str]]) -> str:
    """Jobs as older programs print them, each value as it stands."""
    bodies = []
    for name, lines in jobs:
        inner = ",\n".join(f"            {line}" for line in lines)
        bodies.append(f'        "{name}":{{\n{inner}\n        }}')
    return HEAD + ",\n".join(bodies) + "\n    }\n}\n"


def lines_of(value: str, variable: str = '"A":"1"') -> list[str]:
    return [
        f'"Job_Name":{value}',
        '"job_state":"Q"',
        '"Resource_List":{\n                "ncpus":2\n            }',
        f'"Variable_List":{{\n                {variable}\n            }}',
    ]


@pytest.mark.parametrize("variable", ['"foo":005', r'"F":"() { \"a\z b"', '"x":"a"b{}"', '"y":"a\\,c"'])
def test_reads_invalid_json_job_by_job(variable: str) -> None:
    found = parse_pbs_json(old(("7.vm", lines_of('"x"', variable)), ("8.vm", lines_of('"y"'))), "Jobs")
    assert not found.doubtful
    assert found.records["7.vm"] == {"Job_Name": "x", "job_state": "Q", "Resource_List": {"ncpus": "2"}}
    assert found.records["8.vm"]["Job_Name"] == "y"


@pytest.mark.parametrize(("value", "name"), [("5", "5"), ("1e5", "1e5"), ("007", "007"), ("true", "True")])
def test_name_that_resembles_json_literal_stays_text(value: str, name: str) -> None:
    found = parse_pbs_json(old(("7.vm", lines_of(value))), "Jobs").records["7.vm"]["Job_Name"]
    assert str(found).lower() == name.lower()


def test_tolerates_unclosed_brackets() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    found = parse_pbs_json(old(("7.vm", lines_of('"x"', f'"A":{deep}')), ("8.vm", lines_of('"y"'))), "Jobs")
    assert found.records["8.vm"]["Job_Name"] == "y"


def test_job_listed_twice_is_doubtful() -> None:
    text = old(("7.vm", lines_of('"x"')), ("7.vm", lines_of('"y"')))
    assert parse_pbs_json(text, "Jobs").doubtful == {"7.vm"}
    assert parse_pbs_json(text.replace('"A":"1"', '"A":005'), "Jobs").doubtful == {"7.vm"}


def test_reads_all_of_repeated_limits() -> None:
    text = '{"timestamp":1,"pbs_server":"vm","Queue":{"q":{"max_run":"[u:a=1]","max_run":"[u:b=2]"}}}'
    assert parse_pbs_json(text, "Queue").records["q"]["max_run"] == ("[u:a=1]", "[u:b=2]")


@pytest.mark.parametrize("text", ["", "qstat: cannot connect", "[]", '{"a":1}', HEAD])
def test_rejects_missing_or_truncated_answer(text: str) -> None:
    with pytest.raises(BackendUnavailable):
        parse_pbs_json(text, "Jobs")


@given(st.text(max_size=60), st.text(max_size=60))
@scaled_example_settings(200)
def test_user_text_cannot_change_other_records(name: str, variable: str) -> None:
    """As OpenPBS 23 prints it, and as older programs do, which escape nothing but quotes and breaks of lines."""
    escaped = (json.dumps(name), json.dumps({"V": variable})[1:-1])
    raw = (name.translate({10: "\\n", 13: " ", 34: '\\"'}), variable.translate({10: "\\n", 13: " ", 34: '\\"'}))
    for said, variables in (escaped, (f'"{raw[0]}"', f'"V":"{raw[1]}"')):
        text = old(("7.vm", lines_of(said, variables)), ("8.vm", lines_of('"y"')))
        found = parse_pbs_json(text, "Jobs")
        assert set(found.records) == {"7.vm", "8.vm"}
        assert found.records["8.vm"] == {"Job_Name": "y", "job_state": "Q", "Resource_List": {"ncpus": "2"}}
        if "7.vm" not in found.doubtful:
            assert found.records["7.vm"]["job_state"] == "Q"


TEXTS = ("07", "007", "1e5", "1E5", "+7", ".5", "5.", "-0", "0x7", "00", "nan", "inf", "infinity", "1_000")
"""What C reads as a number, or nearly so, and is printed without quotes by one release or another."""


@pytest.mark.parametrize("broken", [False, True])
def test_keeps_unquoted_number_text_as_printed(broken: bool) -> None:
    said = ["7", "70", "1e5", "1E5", "-0", "7.0", "12345678901234567890"] + [*TEXTS] * broken
    lines = ['"jobs":[\n                "1.vm",\n                "2.vm"\n            ]', '"state":"free"']
    lines += [
        '"resources_available":{\n'
        + ",\n".join(f'                "r{at}":{text}' for at, text in enumerate(said))
        + "\n            }"
    ]
    (found,) = parse_pbs_json(old(("vm", lines)), "Jobs").records.values()
    assert found == {
        "jobs": ("1.vm", "2.vm"),
        "state": "free",
        "resources_available": {f"r{at}": text for at, text in enumerate(said)},
    }
    parts = found["resources_available"]
    assert isinstance(parts, dict)
    assert all(isinstance(value, UnquotedValue) for value in parts.values())


def test_reads_reservation_and_marks_duplicate_unreadable() -> None:
    text = "Resv ID: R28.vm\nReserve_Name = x\nreserve_state = RESV_CONFIRMED\nresv_nodes = (vm[0]:ncpus\n\t=2)\n\n"
    assert pbs_output_parsing.parse_reservations(text)["R28.vm"]["resv_nodes"] == "(vm[0]:ncpus=2)"
    twice = pbs_output_parsing.parse_reservations(text + text.replace("[0]", "[1]"))["R28.vm"]
    assert (twice[UNREADABLE_KEY], twice["resv_nodes"]) == (
        "is listed twice",
        ("(vm[0]:ncpus=2)", "(vm[1]:ncpus=2)"),
    )
