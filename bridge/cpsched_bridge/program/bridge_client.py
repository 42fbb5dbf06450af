"""Query the running bridge over HTTP (`cpsched estimate-start` and `cpsched backfill-windows`)."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pwd import getpwuid
from typing import Any
from urllib.parse import urlencode

from cpsched.formatting import format_cluster_time, format_count, format_duration, format_planned_time
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.program import terminal_views
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.api_v1 import PREFIX

_PATIENCE_S = 60.0


class BridgeNotAnswering(BridgeError):
    """An error raised when the bridge does not answer."""


class RequestRejected(BridgeError):
    """An error raised when the bridge rejects a request as invalid."""

    exit_code = 2


def query_bridge(settings: Settings, name: str, words: Mapping[str, str | int]) -> list[dict[str, Any]]:
    """Query the bridge and return the rows of its response.

    Raise `BridgeNotAnswering` if the bridge does not run or has no plan yet, and `RequestRejected` if the bridge
    rejects the request.
    """
    if not settings.serves_page:
        raise BridgeNotAnswering("page.enabled=false: the bridge answers queries only with the status page; enable it")
    host = settings.metrics.host
    here = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    url = f"http://{here}:{settings.metrics.port}{PREFIX}/{name}"
    try:
        said = {settings.page.user_header: getpwuid(os.geteuid()).pw_name} if settings.page.user_header else {}
        asked = urllib.request.Request(f"{url}?{urlencode(words)}", headers=said)
        with urllib.request.urlopen(asked, timeout=_PATIENCE_S) as answer:
            found = json.load(answer)
            return found["windows"] if name == "windows" else [{"now_s": found["now_s"], **s} for s in found["starts"]]
    except urllib.error.HTTPError as error:
        refused = RequestRejected if error.code == 400 else BridgeNotAnswering
        raise refused(_refusal(error.read(4096)) or f"{url}: {error}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise BridgeNotAnswering(f"no bridge answers at {url}: {reason}; start it with `cpsched bridge`") from error


def _refusal(body: bytes) -> str:
    """Return the API's error message; empty if the response does not come from the API."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, LookupError):
        return ""


def print_start_estimate(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for the request and one for each alternative."""
    table = terminal_views.make_table("asked for", "planned", "8 of 10 start")
    for row in found:
        planned_s = row["planned_s"]
        planned = "never" if planned_s is None else format_planned_time(planned_s, row["now_s"])
        table.add_row(row["asked"] or "this", planned, _likely(row))
    out = terminal_views.make_console()
    out.print(table)
    if any(row["planned_s"] is not None and not row["calibrated"] for row in found):
        out.print("Too few jobs have started since the bridge began: these intervals are rough.")


def _likely(row: Mapping[str, Any]) -> str:
    if row["likely_from_s"] is None:
        return ""
    begin, end = (format_cluster_time(row[name]) for name in ("likely_from_s", "likely_to_s"))
    return begin if begin == end else f"{begin} to {end}"


def print_backfill_windows(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per size."""
    out = terminal_views.make_console()
    if not found:
        out.print("No job could start now without delaying a pending job.")
        return
    table = terminal_views.make_table("could start now", "for at most")
    for row in found:
        what = "whole node" if row["whole"] else "core"
        table.add_row(format_count(row["units"], what), format_duration(row["walltime_s"]))
    out.print(table)
