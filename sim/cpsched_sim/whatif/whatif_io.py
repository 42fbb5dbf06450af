"""Read a what-if study's inputs into a window, and write its findings to a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from cpsched.errors import require
from cpsched.formatting import format_count
from cpsched.gc_pause import gc_paused
from cpsched_sim.cluster.simulated_accounting import Totals
from cpsched_sim.errors import InputError
from cpsched_sim.file_io import require_writable_folder, sha256_of_all, write_atomically, write_csv
from cpsched_sim.input.text_line_reader import dated_files
from cpsched_sim.report_document import render_markdown, render_page
from cpsched_sim.result_files import result_origin_note
from cpsched_sim.site.policy_file import SitePolicyFile
from cpsched_sim.systems.system_file import load_system
from cpsched_sim.traces.trace_record import DEFAULT_DIALECT, TraceDialect
from cpsched_sim.whatif import whatif_report
from cpsched_sim.whatif.accounting_history import read_history
from cpsched_sim.whatif.slurm_collection_folder import SlurmCollectionFolder, list_site_changes
from cpsched_sim.whatif.whatif_replay import REPLAYS_FOLDER
from cpsched_sim.whatif.whatif_window import (
    ReplayedSite,
    WhatIfWindow,
    WindowPeriodOptions,
    choose_or_guess_system,
    cut_whatif_window,
)

HTML_REPORT, MARKDOWN_REPORT, FINDINGS_FILE, SYSTEM_FILE = "report.html", "report.md", "findings.json", "system.yaml"
TABLE_ROWS_BY_FILE = {
    "gains.csv": whatif_report.gains_csv_rows,
    "fidelity.csv": whatif_report.fidelity_csv_rows,
    "losers.csv": whatif_report.losers_csv_rows,
}
GUESSED_SYSTEM = "guessed"
MAX_LISTED_NOTES = 5
MAX_LISTED_CHANGES = 40


def require_new_whatif_folder(out: Path, resume: bool) -> None:
    """Raise `InputError` if `out` contains results and `resume` is not set."""
    require_writable_folder(out)
    if not resume and ((out / FINDINGS_FILE).exists() or (out / REPLAYS_FOLDER).exists()):
        raise InputError(
            f"{out}: already has results{result_origin_note(out / FINDINGS_FILE)}; use --resume, "
            "or choose another --out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfInputs:
    """The inputs of a what-if study: a file or folder of accounting data, and how to read it."""

    source: Path
    system: str | None = None
    period: WindowPeriodOptions = field(default_factory=WindowPeriodOptions)
    lenient: bool = False
    format: str | None = None
    dialect: TraceDialect = DEFAULT_DIALECT
    site: SitePolicyFile | None = None
    earlier: Path | None = None
    """A folder that was collected earlier at the same site. Changes since then become notes."""
    license_totals: Totals = field(default_factory=dict)
    """Totals of licenses, which override those in the folder."""


def read_whatif_window(inputs: WhatIfInputs) -> tuple[WhatIfWindow, dict[str, Any]]:
    """Read the window. Return it with the digests of its inputs. Raise the readers' exceptions."""
    folder = SlurmCollectionFolder.find(inputs.source)
    with gc_paused():
        if folder is not None:
            return _read_collection_folder(folder, inputs)
        earlier, dialect, site = inputs.earlier, inputs.dialect, inputs.site
        require(earlier is None, "--earlier", str(earlier), "requires a folder written by `cpsched whatif collect`")
        history = read_history(inputs.source, inputs.lenient, inputs.format, dialect)
        file, guessed = choose_or_guess_system(history, inputs.system, GUESSED_SYSTEM)
        replayed = ReplayedSite(file, guessed, dialect.zone, site, license_totals=inputs.license_totals)
        window = cut_whatif_window(history, replayed, inputs.period)
        window = replace(window, notes=(*window.notes, *(site.notes if site is not None else ())))
        return window, _input_digests(window, inputs.source, inputs)


def _read_collection_folder(folder: SlurmCollectionFolder, inputs: WhatIfInputs) -> tuple[WhatIfWindow, dict[str, Any]]:
    """Read a collected folder: its nodes, its outages and the site's time zone."""
    system, site, zone = inputs.system, inputs.site, inputs.dialect.zone
    earlier = SlurmCollectionFolder.of(inputs.earlier) if inputs.earlier is not None else None
    require(not zone, "--zone", zone, "must not be set: collected times are in UTC")
    history = read_history(folder.accounting_path, inputs.lenient, "sacct", inputs.dialect)
    file = load_system(system) if system is not None else folder.system()
    outages, strange = folder.outages(file) if system is None else ([], 0)
    if earlier is not None and system is None:
        outages = [*outages, *folder.outages_of_added_nodes(earlier, file, history.ran)]
    totals = {**folder.licenses(), **inputs.license_totals}
    replayed = ReplayedSite(file, "", folder.zone, site, outages, totals)
    window = cut_whatif_window(history, replayed, inputs.period)
    not_simulated = dict.fromkeys((*folder.notes, *(site.notes if site is not None else ())))
    window = replace(window, notes=(*window.notes, *not_simulated, *_list_differences(folder, earlier, window)))
    if strange:
        note = f"{format_count(strange, 'outage is', 'outages are')} of nodes that are gone or have changed: omitted"
        window = replace(window, notes=(*window.notes, note))
    digests = _input_digests(window, folder.accounting_path, inputs)
    return window, digests | {"outages": len(outages), "outages_sha256": sha256(repr(outages).encode()).hexdigest()}


def _list_differences(
    folder: SlurmCollectionFolder, earlier: SlurmCollectionFolder | None, window: WhatIfWindow
) -> Iterator[str]:
    """Yield notes on changes at the site that may affect the window's replay."""
    if earlier is None:
        booted_s = folder.slurmctld_start_s
        if booted_s is not None and window.from_s < booted_s < window.to_s:
            began = f"{window.to_local_time(booted_s):%Y-%m-%d %H:%M}"
            yield (
                f"slurmctld restarted at {began}, within the window: slurm.conf may have been different before. "
                "The replay uses the latest; --earlier FOLDER shows the changes"
            )
        return
    require(earlier.until_s < folder.until_s, "--earlier", str(earlier.path), "must have been collected earlier")
    when = f"{window.to_local_time(earlier.until_s):%Y-%m-%d %H:%M}"
    found = list_site_changes(earlier.path, folder.path)
    if not found:
        yield f"no change since {when}"
        return
    if earlier.until_s >= window.to_s:
        when += ", which is after the window"
    yield f"changed since {when}; the replay uses the latest values (--to ends the window earlier):"
    yield from found[:MAX_LISTED_CHANGES]
    if len(found) > MAX_LISTED_CHANGES:
        yield f"and {len(found) - MAX_LISTED_CHANGES:,} more changes"


def _input_digests(window: WhatIfWindow, jobs: Path, inputs: WhatIfInputs) -> dict[str, Any]:
    """Return the digests of the inputs that all replays of a window share."""
    file, site = window.system, window.site
    licenses = {"licenses": window.licenses.to_licenses_option} if window.licenses.totals else {}
    return {
        "input_sha256": sha256_of_all(dated_files(jobs)),
        "system_sha256": sha256(file.model_dump_json().encode()).hexdigest(),
        "policy_sha256": site.sha256 if site is not None else "", "from_s": window.from_s, "to_s": window.to_s,
        "lenient": inputs.lenient, "dialect": asdict(inputs.dialect), **licenses,
    }  # fmt: skip


def list_window_warnings(window: WhatIfWindow) -> Iterator[str]:
    """Yield the warnings to show before a long run."""
    yield from window.notes
    out = list(window.left_out.items())
    yield from (f"not replayed: {format_count(count, 'job')}: {why}" for why, count in out[:MAX_LISTED_NOTES])
    if len(out) > MAX_LISTED_NOTES:
        yield f"not replayed: {sum(count for _, count in out[MAX_LISTED_NOTES:]):,} more, see the report"


def write_guessed_system(window: WhatIfWindow, out: Path) -> Path:
    """Write the guessed system to a file that the user can correct. Return the path."""
    text = yaml.safe_dump(window.system.model_dump(mode="json", exclude_none=True), sort_keys=False)
    write_atomically(out / SYSTEM_FILE, f"# Guessed by {window.guessed}. Check every number.\n{text}".encode())
    return out / SYSTEM_FILE


def write_whatif_report(found: Mapping[str, Any], out: Path) -> None:
    """Write the report as HTML and Markdown, the findings as JSON, and tables as CSV.

    Raise `InputError`.
    """
    write_atomically(out / FINDINGS_FILE, (json.dumps(found, indent=1) + "\n").encode())
    title, blocks = whatif_report.whatif_report_title(found), list(whatif_report.whatif_report_blocks(found))
    write_atomically(out / MARKDOWN_REPORT, render_markdown(title, blocks).encode())
    for name, rows in TABLE_ROWS_BY_FILE.items():
        write_csv(out / name, rows(found))
    write_atomically(out / HTML_REPORT, render_page(title, blocks).encode())
