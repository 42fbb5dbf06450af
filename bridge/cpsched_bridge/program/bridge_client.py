"""Query the running bridge over HTTP for commands such as `cpsched queue`."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from cpsched.formatting import (
    format_count,
    format_duration,
    format_planned_time,
    format_relative_time,
    format_start_interval,
)
from cpsched_bridge.errors import BridgeError
from cpsched_bridge.program import terminal_views
from cpsched_bridge.program.bridge_reports import describe_stop
from cpsched_bridge.settings import Settings
from cpsched_bridge.users import find_user_name
from cpsched_bridge.views.job_explanation import NOT_CALIBRATED
from cpsched_bridge.web.api_v1 import PREFIX

_TIMEOUT_S = 60.0


class BridgeNotAnswering(BridgeError):
    """An error raised when the bridge does not answer."""


class BridgeRequestRejected(BridgeError):
    """An error raised when the bridge rejects a request as invalid."""

    exit_code = 2


def get_process_user_name() -> str:
    """Return this process's user name, or the user id if it has no name."""
    return find_user_name(os.geteuid())


def query_bridge(
    address: str,
    load_settings: Callable[[], Settings],
    name: str,
    query: Mapping[str, str | int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Query the status page at an address, or that of the bridge with these settings if it is empty.

    Return the response. Raise the errors of `query_bridge_at_address`.
    """
    if address:
        return query_bridge_at_address(address, name, query)
    settings = load_settings()
    if not settings.serves_page:
        raise BridgeNotAnswering(
            "page.enabled=false: the bridge answers queries only if the status page is enabled; set page.enabled=true"
        )
    host = settings.metrics.host
    here = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    header = {settings.page.user_header: get_process_user_name()} if settings.page.user_header else {}
    try:
        return query_bridge_at_address(f"http://{here}:{settings.metrics.port}", name, query, header)
    except BridgeNotAnswering as error:
        if stop := describe_stop(settings):
            raise BridgeNotAnswering(f"the bridge is not running, {stop}") from error
        raise


def query_bridge_at_address(
    address: str, name: str, words: Mapping[str, str | int], header: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Query the status page at an address and return its response.

    Raise `BridgeNotAnswering` if the bridge is not running or has no plan yet. Raise `BridgeRequestRejected` if it
    rejects the request.
    """
    if not address.startswith(("http://", "https://")):
        raise BridgeRequestRejected(f"url={address}: must begin with http:// or https://")
    url = f"{address.rstrip('/')}{PREFIX}/{quote(name)}"
    try:
        asked = urllib.request.Request(f"{url}?{urlencode(words)}", headers=dict(header))
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            found["now_s"]  # every answer has it
            return found
    except urllib.error.HTTPError as error:
        refused = BridgeRequestRejected if error.code in (400, 404) else BridgeNotAnswering
        body = error.read(4096)
        raise refused(_parse_error_message(body) or f"{url}: {error}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise BridgeNotAnswering(
            f"{url}: the bridge does not respond: {reason}; ask an operator to start it"
        ) from error


def find_job(settings: Settings, job: str) -> dict[str, Any] | None:
    """Return the running bridge's answer about a job, or None if it does not answer or does not know the job."""
    try:
        return query_bridge("", lambda: settings, f"jobs/{job}")
    except (BridgeNotAnswering, BridgeRequestRejected):
        return None


def list_rows(found: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the rows of a response, each with the time at which it was observed."""
    return [{"now_s": found["now_s"], **row} for row in found[key]]


def _parse_error_message(body: bytes) -> str:
    """Return the API's error message, or "" if the API did not send the response.

    The response about an unknown job has no error, but a sentence.
    """
    try:
        found = json.loads(body)
        return str(found["error"] if "error" in found else f"job={found['label']}: {found['sentences'][0]}")
    except (ValueError, TypeError, LookupError):
        return ""


def print_start_estimate(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for the request and one for each smaller request that the plan starts earlier."""
    table = terminal_views.make_table("request", "start (80 %)", "plan")
    for row in found:
        table.add_row(row["request"] or "as given", row["start"], row["plan"])
    out = terminal_views.make_console()
    out.print(table)
    if any(row["planned_s"] is not None and not row["calibrated"] for row in found):
        out.print(NOT_CALIBRATED)


def print_queue(found: Sequence[Mapping[str, Any]], with_intervals: bool, user: str) -> None:
    """Print one line per job, of `user` or, if empty, of all users.

    With `with_intervals`, print more of each pending job's forecast.
    """
    out = terminal_views.make_console()
    if not found:
        what = "pending" if with_intervals else "pending or running"
        owner = f" of user {user}" if user else ""
        hint = "; --all shows all users' jobs" if user else ""
        out.print(f"No job{owner} is {what}{hint}.")
        return
    if with_intervals:
        table = terminal_views.make_table("job", "name", "user", "start (80 %)", "start (50 %)", "median")
    else:
        table = terminal_views.make_table("job", "partition", "name", "user", "state", "start (80 %)", "reason")
    for row in found:
        if with_intervals:
            half, median = _format_forecast(row)
            table.add_row(row["label"], row["name"], row["user"], row["start"], half, median)
        else:
            start = _format_start(row)
            table.add_row(row["label"], row["partition"], row["name"], row["user"], row["state"], start, row["reason"])
    out.print(table)
    if any(row["start_quantiles_s"] and not row["calibrated"] for row in found):
        out.print(NOT_CALIBRATED)


def _format_start(row: Mapping[str, Any]) -> str:
    return str(row["start"]) if row["start_s"] is None else format_relative_time(row["start_s"], row["now_s"])


def _format_forecast(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the 50 % interval and the median start, relative to now. A job without a reason starts now."""
    if not row["start_quantiles_s"] or not row["reason"]:
        return "", ""
    _, _, quarter_s, median_s, three_quarters_s, _, _ = row["start_quantiles_s"]
    half = format_start_interval(quarter_s, three_quarters_s, row["now_s"])
    return half, format_planned_time(median_s, row["now_s"])


def print_job(found: Mapping[str, Any]) -> None:
    """Print the explanation of one job."""
    out = terminal_views.make_console()
    for line in terminal_views.format_answer(found):
        out.print(line)


def print_backfill_windows(found: Sequence[Mapping[str, Any]]) -> None:
    """Print one line per job size that could start now."""
    out = terminal_views.make_console()
    if not found:
        out.print("No job could start now without delaying a pending job.")
        return
    table = terminal_views.make_table("could start now", "maximum run time")
    for row in found:
        what = "whole node" if row["exclusive"] else "core"
        table.add_row(format_count(row["units"], what), format_duration(row["walltime_s"]))
    out.print(table)
