"""`cpsched gantt`: a schedule as a drawing in a file, or as the status page with a slider for the time."""

from __future__ import annotations

import re
import signal
import threading
from html import escape
from pathlib import Path

from cpsched.errors import require
from cpsched.formatting import span
from cpsched.policy_spec import PolicySpec
from cpsched_bridge.program import schedules
from cpsched_bridge.program.schedules import Finished
from cpsched_bridge.watch.endpoint import Endpoint
from cpsched_bridge.watch.page import gantt
from cpsched_bridge.watch.page.gantt import DrawnWindow
from cpsched_bridge.watch.web.page import page_routes
from cpsched_bridge.watch.web.server import served
from cpsched_sim.experiment import Setup, run
from cpsched_sim.files import write_whole
from cpsched_sim.oracle import SIMULATED
from cpsched_sim.patience import LIMIT_S, patience
from cpsched_sim.results import check_new
from cpsched_sim.workloads.load import load

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def opened(path: Path, system: str | None, dispatcher: str, predictor: str, max_jobs: int | None) -> Finished:
    """The schedule of a file: as written, or as a policy makes it of a trace. Raises `SimError`, `CpschedError`."""
    if schedules.is_schedule(path):
        return schedules.read(path)
    with patience(LIMIT_S) as patient:
        setup = Setup(PolicySpec.of(dispatcher, predictor, known=SIMULATED))
        workload = load(path, system, max_jobs=max_jobs, progress=patient.renew)
        return schedules.of_simulation(run(workload, setup, patient.renew))


def check_out(out: Path) -> None:
    """Raise `InvalidValue` or `Unusable` where no drawing can be written: before a long replay, not after."""
    require(out.suffix in (".svg", ".html"), "--out", out, "must end in .svg or .html")
    check_new(out)


def seconds(option: str, text: str | None, otherwise: int) -> int:
    """Seconds of a text: `7200`, `120m`, `2h`, `1d`. Raises `InvalidValue`."""
    if text is None:
        return otherwise
    found = re.fullmatch(r"(\d{1,12})([smhd]?)", text)
    require(found is not None, option, text, "must be seconds, or a number with s, m, h or d")
    assert found is not None
    return int(found[1]) * _UNITS_S[found[2]]


def write(found: Finished, out: Path, from_text: str | None, to_text: str | None) -> str:
    """Draw from one time to another, both counted from the first submission; a line that says what was drawn.

    Raises `InvalidValue` for times that make no sense, `Unusable` where the file cannot be written.
    """
    begin_s, end_s = found.slider.from_s, found.slider.to_s
    from_s = begin_s + seconds("--from", from_text, 0)
    to_s = begin_s + seconds("--to", to_text, end_s - begin_s)
    require(from_s < end_s, "--from", from_text or from_s, f"must be before the end, {span(end_s - begin_s)} later")
    require(to_s > from_s, "--to", to_text or to_s - begin_s, "must be after --from")
    check_out(out)
    chart = found.chart(from_s, to_s, begin_s)
    bars = [bar.model_copy(update={"kind": "running"}) for bar in chart.bars]
    chart = chart.model_copy(update={"bars": bars})
    window = DrawnWindow(from_s, to_s, 0, len(found.node_names), live=False)
    title = f"{found.title}: {len(bars)} jobs on {len(found.node_names)} nodes"
    drawing = gantt.draw(chart, window, alone=True, title=title)
    write_whole(out, (drawing if out.suffix == ".svg" else _document(title, drawing)).encode() + b"\n")
    return f"wrote {out}: {title}"


def _document(title: str, drawing: str) -> str:
    """The drawing as a page that needs nothing else."""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><body><h1>{escape(title)}</h1>\n{drawing}\n</body></html>"
    )


def serve(found: Finished, port: int) -> None:
    """Serve the page over the schedule on loopback until Ctrl-C or SIGTERM. Raises `AddressTaken`."""
    endpoint = Endpoint(served(page_routes(found)), "127.0.0.1", port, "--port")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    print(f"{endpoint.url} shows {found.title}; Ctrl-C ends it", flush=True)
    ended.wait()
    endpoint.close()
