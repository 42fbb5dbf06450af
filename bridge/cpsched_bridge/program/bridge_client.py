"""Query the running bridge over HTTP for commands such as `cpsched queue`."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from cpsched.formatting import (
    format_cluster_time,
    format_count,
    format_duration,
    format_planned_time,
    format_relative_time,
    format_time_left,
)
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.host_users import find_user_name
from cpsched_bridge.program import terminal_views
from cpsched_bridge.settings import Settings
from cpsched_bridge.web.api_v1 import PREFIX
from cpsched_bridge.web.job_explanation import NOT_CALIBRATED

_TIMEOUT_S = 60.0
_ROW_KEYS = {"windows": "windows", "when": "starts", "jobs": "jobs"}
"""Key of the rows in the response, by the last component of the path."""


class BridgeNotAnswering(BridgeError):
    """An error raised when the bridge does not answer."""


class BridgeRequestRejected(BridgeError):
    """An error raised when the bridge rejects a request as invalid."""

    exit_code = 2


def get_process_user_name() -> str:
    """Return this process's user name, or the user id if it has no name."""
    return find_user_name(os.geteuid())


def query_bridge(settings: Settings, name: str, query: Mapping[str, str | int]) -> list[dict[str, Any]]:
    """Query the bridge that has these settings. Return the rows in its response.

    Raise the errors of `query_bridge_at_address`.
    """
    if not settings.serves_page:
        raise BridgeNotAnswering(
            "page.enabled=false: the bridge answers queries only if the status page is enabled; set page.enabled=true"
        )
    host = settings.metrics.host
    here = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    header = {settings.page.user_header: get_process_user_name()} if settings.page.user_header else {}
    return query_bridge_at_address(f"http://{here}:{settings.metrics.port}", name, query, header)


def query_bridge_at_address(
    address: str, name: str, words: Mapping[str, str | int], header: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Query the status page at an address and return the rows in its response.

    Raise `BridgeNotAnswering` if the bridge is not running or has no plan yet. Raise `BridgeRequestRejected` if it
    rejects the request.
    """
    if not address.startswith(("http://", "https://")):
        raise BridgeRequestRejected(f"url={address}: must begin with http:// or https://")
    url = f"{address.rstrip('/')}{PREFIX}/{name}"
    try:
        asked = urllib.request.Request(f"{url}?{urlencode(words)}", headers=dict(header))
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            found = json.load(answer)
            return [{"now_s": found["now_s"], **row} for row in found[_ROW_KEYS[name]]]
    except urllib.error.HTTPError as error:
        refused = BridgeRequestRejected if error.code == 400 else BridgeNotAnswering
        raise refused(_parse_error_message(error.read(4096)) or f"{url}: {error}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise BridgeNotAnswering(
            f"{url}: the bridge does not respond: {reason}; start it with `cpsched bridge`"
        ) from error


def _parse_error_message(body: bytes) -> str:
    """Return the API's error message, or "" if the API did not send the response."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, LookupError):
        return ""


def print_start_estimate(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for the request and one for each alternative request."""
    table = terminal_views.make_table("request", "planned start", "80 % interval")
    for row in found:
        planned_s = row["planned_s"]
        planned = "never" if planned_s is None else format_planned_time(planned_s, row["now_s"])
        table.add_row(row["asked"] or "as given", planned, _format_likely_start(row))
    out = terminal_views.make_console()
    out.print(table)
    if any(row["planned_s"] is not None and not row["calibrated"] for row in found):
        out.print(NOT_CALIBRATED)


def _format_likely_start(row: Mapping[str, Any]) -> str:
    if row["likely_from_s"] is None:
        return ""
    begin, end = (format_cluster_time(row[name]) for name in ("likely_from_s", "likely_to_s"))
    return begin if begin == end else f"{begin} to {end}"


def print_queue(found: Sequence[Mapping[str, Any]], with_intervals: bool) -> None:
    """Print one line per job.

    With `with_intervals`, print the median start and its 50 % and 80 % intervals instead of the state and start.
    """
    out = terminal_views.make_console()
    if not found:
        out.print("No job is pending." if with_intervals else "No job is pending or running.")
        return
    when = ("median start", "50 % interval", "80 % interval") if with_intervals else ("state", "start")
    table = terminal_views.make_table("job", "partition", "name", "user", *when, "reason")
    for row in found:
        cells = _format_forecast(row) if with_intervals else (row["state"].replace("_", " "), _format_start(row))
        table.add_row(row["label"], row["partition"], row["name"], row["user"], *cells, row["reason"])
    out.print(table)
    if with_intervals and any(row["start_quantiles_s"] and not row["calibrated"] for row in found):
        out.print(NOT_CALIBRATED)


def _format_start(row: Mapping[str, Any]) -> str:
    start_s = row["planned_s"] if row["start_s"] is None else row["start_s"]
    return "" if start_s is None else format_relative_time(start_s, row["now_s"])


def _format_forecast(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the median start, and its 50 % and 80 % intervals relative to now."""
    if not row["start_quantiles_s"]:
        return "", "", ""
    _, low_s, quarter_s, median_s, three_quarters_s, high_s, _ = row["start_quantiles_s"]
    half, most = (_format_interval(*ends, row["now_s"]) for ends in ((quarter_s, three_quarters_s), (low_s, high_s)))
    return format_cluster_time(median_s), half, most


def _format_interval(from_s: int, to_s: int, now_s: int) -> str:
    begin, end = format_planned_time(from_s, now_s), format_time_left(to_s, now_s)
    return begin if begin.endswith(end) else f"{begin} to {end}"


def print_backfill_windows(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per job size that could start now."""
    out = terminal_views.make_console()
    if not found:
        out.print("No job could start now without delaying a pending job.")
        return
    table = terminal_views.make_table("could start now", "maximum run time")
    for row in found:
        what = "whole node" if row["whole"] else "core"
        table.add_row(format_count(row["units"], what), format_duration(row["walltime_s"]))
    out.print(table)
