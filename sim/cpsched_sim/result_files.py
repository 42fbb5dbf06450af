"""Results on disk: by which settings each was made, and that none is overwritten or mixed with another's.

- A command that writes results refuses to begin where its files are there already.
- Beside every result stands what it was made of and with (`summary.json`, or a manifest).
- A comparison that goes on (`--resume`) adds to what is there, where it was made of the same, else it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cpsched_sim.errors import InputError, quote_value
from cpsched_sim.files import require_writable_folder, write_atomically

SUMMARY = "summary.json"
OWN = ("dispatcher", "predictor", "settings", "limits", "plugins")
"""In what the combinations of one comparison may differ."""


def check_new(*paths: Path) -> None:
    """Raise `InputError` where one of `paths` is there already, or could not be written: before hours of work."""
    for path in paths:
        require_writable_folder(path.parent)
    there = [path for path in paths if path.exists()]
    if there:
        raise InputError(f"{there[0]}: is there already{created_note(there[0])}: remove it, or name another")


def created_note(path: Path) -> str:
    """When a result was made and of what, in brackets, where that stands beside it."""
    for manifest in (manifest_of(path), path.parent / SUMMARY):
        if (written := _read(manifest)) is not None and "date" in written:
            setup = written.get("setup", {})
            trace = setup.get("trace", "")
            return f" (made at {quote_value(written['date'])}{f' of {quote_value(trace)}' if trace else ''})"
    return ""


def manifest_of(path: Path) -> Path:
    """Where the manifest of a result stands: `predictor_accuracy.csv.json` beside `predictor_accuracy.csv`."""
    return path.with_name(f"{path.name}.json")


def manifest_content(setup: Mapping[str, Any]) -> dict[str, Any]:
    """What a manifest says: by which version a result was made, when, and by which settings."""
    return {"version": version("cpsched"), "date": datetime.now(UTC).isoformat(timespec="seconds"), "setup": {**setup}}


def write_manifest(path: Path, setup: Mapping[str, Any]) -> None:
    """Write the manifest of the result `path` beside it. Raises `InputError`."""
    write_atomically(manifest_of(path), (json.dumps(manifest_content(setup), indent=2) + "\n").encode())


def finished_in(out: Path) -> dict[str, dict[str, Any]]:
    """The summaries in the folders of a comparison, by folder. What is damaged was never finished."""
    found = ((path.parent.name, _read(path)) for path in sorted(out.glob(f"*/{SUMMARY}")))
    return {name: written for name, written in found if written is not None and isinstance(written.get("setup"), dict)}


def check_comparison_is_new(out: Path, files: Iterable[str]) -> None:
    """Raise `InputError` where `out` holds a comparison already."""
    finished = finished_in(out)
    if finished:
        names = ", ".join(list(finished)[:3]) + (", ..." if len(finished) > 3 else "")
        when = created_note(out / next(iter(finished)) / SUMMARY)
        held = f"{out}: holds {len(finished)} finished combinations already: {names}{when}"
        raise InputError(f"{held}; --resume adds to them, another --out keeps them apart")
    check_new(*(out / name for name in files))


def require_same_inputs(out: Path, asked: Mapping[str, Mapping[str, Any]], metrics: Iterable[str]) -> None:
    """Raise `InputError` where what is finished in `out` was made of anything else than what is asked for now.

    `asked` is what a replay depends on (`identity`) and its code, by folder. Of a combination that is not asked for
    again, all counts but what is its own (`OWN`). The version is only shown.
    """
    shared = next(iter(asked.values()))
    for folder, written in finished_in(out).items():
        expected = asked.get(folder) or {name: value for name, value in shared.items() if name not in OWN}
        differences = list(_differences(written["setup"], expected))
        differences += [f"--metric {name} is new" for name in metrics if name not in written]
        if differences:
            made, rule = quote_value(written.get("version")), "another --out keeps the results apart"
            what = f"was made otherwise: {'; '.join(differences[:5])}"
            raise InputError(f"{out / folder}: {what} (version {made}, now {version('cpsched')}): {rule}")


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """In which settings two results differ; a setting within settings by its own name."""
    for name, value in now.items():
        old = then.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            yield from _differences({**dict.fromkeys(value), **old}, {**dict.fromkeys(old), **value})
        elif old != value:
            yield f"{name} was {quote_value(old)}, now {quote_value(value)}"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return written if isinstance(written, dict) else None
