"""Store results with their settings. Never overwrite results or mix settings.

- A command that writes results refuses to start if its output files exist.
- Next to every result, a file lists its inputs and settings (`summary.json` or a manifest).
- `--resume` extends an existing comparison if the inputs are equal, and fails otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.file_io import require_writable_folder, write_atomically

SUMMARY_FILE = "summary.json"
VARIED_SETTINGS = ("dispatcher", "predictor", "settings", "limits", "plugins")
"""The settings in which the combinations of one comparison may differ."""


def require_new_files(*paths: Path) -> None:
    """Raise `InputError` if one of `paths` exists or cannot be written.

    A long run can then fail before it starts.
    """
    for path in paths:
        require_writable_folder(path.parent)
    there = [path for path in paths if path.exists()]
    if there:
        raise InputError(f"{there[0]}: already exists{result_origin_note(there[0])}: remove it, or choose another file")


def result_origin_note(path: Path) -> str:
    """Return a result's date and trace in parentheses, or "" if they are unknown."""
    for manifest in (manifest_path(path), path.parent / SUMMARY_FILE):
        if (written := _read_json_object(manifest)) is not None and "date" in written:
            setup = written.get("setup", {})
            trace = setup.get("trace", "")
            return f" (created at {quote_value(written['date'])}{f' from {quote_value(trace)}' if trace else ''})"
    return ""


def manifest_path(path: Path) -> Path:
    """Return the path of a manifest: `accuracy.csv.json` for `accuracy.csv`."""
    return path.with_name(f"{path.name}.json")


def manifest_content(setup: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest: version, date and settings."""
    return {"version": version("cpsched"), "date": datetime.now(UTC).isoformat(timespec="seconds"), "setup": {**setup}}


def write_manifest(path: Path, setup: Mapping[str, Any]) -> None:
    """Write the manifest of the result `path` next to it. Raise `InputError`."""
    write_atomically(manifest_path(path), (json.dumps(manifest_content(setup), indent=2) + "\n").encode())


def read_finished_summaries(out: Path) -> dict[str, dict[str, Any]]:
    """Return a comparison's summaries by folder. A damaged summary is omitted."""
    found = ((path.parent.name, _read_json_object(path)) for path in sorted(out.glob(f"*/{SUMMARY_FILE}")))
    return {name: written for name, written in found if written is not None and isinstance(written.get("setup"), dict)}


def check_comparison_is_new(out: Path, files: Iterable[str]) -> None:
    """Raise `InputError` if `out` already contains a comparison."""
    finished = read_finished_summaries(out)
    if finished:
        names = ", ".join(list(finished)[:3]) + (", ..." if len(finished) > 3 else "")
        when = result_origin_note(out / next(iter(finished)) / SUMMARY_FILE)
        held = f"{out}: already has {len(finished)} finished combinations: {names}{when}"
        raise InputError(f"{held}; use --resume to add to them, or choose another --out")
    require_new_files(*(out / name for name in files))


def require_same_inputs(out: Path, asked: Mapping[str, Mapping[str, Any]], metrics: Iterable[str]) -> None:
    """Raise `InputError` if a finished result in `out` has different inputs.

    `asked` maps each requested combination's folder to its inputs and code. A finished combination that is not
    requested again must match the requested ones, except in settings that may vary (`VARIED_SETTINGS`). Versions are
    shown but not compared.
    """
    shared = next(iter(asked.values()))
    for folder, written in read_finished_summaries(out).items():
        expected = asked.get(folder) or {name: value for name, value in shared.items() if name not in VARIED_SETTINGS}
        differences = list(_find_setting_differences(written["setup"], expected))
        differences += [f"--metric {name} is new" for name in metrics if name not in written]
        if differences:
            made, rule = quote_value(written.get("version")), "choose another --out"
            what = f"was computed with other inputs: {'; '.join(differences[:5])}"
            raise InputError(f"{out / folder}: {what} (version {made}, now {version('cpsched')}): {rule}")


def _find_setting_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings in which two results differ.

    Nested settings have their own names.
    """
    for name, value in now.items():
        old = then.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            yield from _find_setting_differences({**dict.fromkeys(value), **old}, {**dict.fromkeys(old), **value})
        elif old != value:
            yield f"{name} was {quote_value(old)}, now {quote_value(value)}"


def _read_json_object(path: Path) -> dict[str, Any] | None:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return written if isinstance(written, dict) else None
