"""Generate the example settings files in this folder from the settings models (`make example-settings`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from cpsched_bridge.adapters.pbs import Options as PbsOptions
from cpsched_bridge.effective_config import to_yaml
from cpsched_bridge.settings import Section, Settings

DEPLOY = Path(__file__).resolve().parent
_WIDTH = 120
_EMPTY = '""'
_OF_PBS: dict[str, Any] = {"left_queue": "leftq", "bin": "/opt/pbs/bin"}
"""Options set in the example. Control mode requires the first, and PBS packages install into the second."""


def every_setting() -> str:
    """Return the example with every setting and its default."""
    head = "# /etc/cpsched/bridge.yaml: every setting with its default. Omit settings that you do not change.\n"
    return "\n".join([head, *_lines(Settings())]) + "\n"


def beside_pbs() -> str:
    """Return the example for PBS, with every option of its adapter."""
    head = "# /etc/cpsched/bridge.yaml for PBS; bridge.example.yaml contains the settings that all adapters share.\n"
    mode, adapter = Settings.model_fields["mode"], "adapter: pbs"
    lines = [*_comment(mode.description or "", ""), f"mode: {mode.default}", adapter, "options:"]
    return "\n".join([head, *lines, *_lines(PbsOptions(**_OF_PBS), "  ")]) + "\n"


def _lines(section: Section, indent: str = "") -> Iterator[str]:
    """Yield the lines of each setting, preceded by its description, and of each section, preceded by its first
    sentence.
    """
    plain: dict[str, Any] = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from [] if indent else [""]
            yield from _comment(" ".join((value.__doc__ or "").split()), indent)
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield from _comment(_meaning(field), indent)
            yield f"{indent}{name}: {to_yaml(plain[name]) or _EMPTY}"


def _meaning(field: FieldInfo) -> str:
    """Return the description, with the permitted values unless it mentions all of them."""
    description, kinds = field.description or "", (field.annotation, *get_args(field.annotation))
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return description if all(word in description for word in words) else f"{description} One of: {', '.join(words)}."


def _comment(text: str, indent: str) -> list[str]:
    return [f"{indent}# {line}" for line in wrap(text, _WIDTH - len(indent) - 2)]


FILES = {DEPLOY / "bridge.example.yaml": every_setting, DEPLOY / "bridge.pbs.example.yaml": beside_pbs}
"""The function that returns the content of each file."""


if __name__ == "__main__":
    for path, write in FILES.items():
        path.write_text(write(), encoding="utf-8")
