"""Compare start forecasts with the recorded estimates of `squeue --start`.

`cpsched record-slurm-estimates` records the estimates.

Both are measured against the recorded starts. A forecast is compared with the nearest estimate of its job, which was
recorded at most `NEAREST_S` earlier or later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpsched.forecast import LEVELS, pinball_loss_s
from cpsched.model import NEVER
from cpsched.policy import Policy
from cpsched_sim.cluster.replay import Progress
from cpsched_sim.errors import InputError, InvalidTrace
from cpsched_sim.experiments.bootstrap_statistics import FloatArray, bootstrap_interval, draw_resample_counts
from cpsched_sim.input.text_line_reader import read_text_lines
from cpsched_sim.start_time_accuracy import replay_start_forecasts
from cpsched_sim.traces.columnar_trace import ColumnarTrace
from cpsched_sim.workloads.workload_loader import Workload

HEADING = "at_unix_s,job,start_unix_s"
"""Header of a recording: time of the estimate, job id in `squeue`, and estimated start (empty if Slurm has none)."""
NEAREST_S = 60
_DAY_S = 86_400
_Nearest = dict[tuple[str, int], tuple[int, int | None]]
"""Distance and value of an estimate, by job and moment."""


def read_slurm_start_estimates(path: Path) -> Iterator[tuple[int, str, int | None]]:
    """Yield the rows of a recording. Raise `InputError` or `InvalidTrace`."""
    for number, line in read_text_lines(path):
        text = line.strip()
        if number == 1 and text != HEADING:
            raise InvalidTrace(path, 1, "header", text, f"must be {HEADING}, as record-slurm-estimates writes it")
        if number > 1:
            try:
                at_s, job, start_s = text.split(",")
                yield int(at_s), job, int(start_s) if start_s else None
            except ValueError:
                raise InvalidTrace(path, number, "row", text, f"must be {HEADING}") from None


def compare_forecasts_with_slurm(
    workload: Workload, policy: Policy, path: Path, ids: Mapping[int, str], progress: Progress | None = None
) -> dict[str, Any]:
    """Return the errors of the forecasts and of the estimates in `path`, for JSON.

    The forecasts are for the second half of the jobs.

    Each estimate is used for all quantiles in the pinball loss. Differences are forecasts minus estimates.
    `ids` contains the ids in `squeue` of jobs whose number in the trace differs. Raise `InputError` if a recorded start
    is missing, or if no forecast has an estimate.
    """
    recorded_s, epoch_s = ColumnarTrace.of(workload.jobs).recorded_start_s, workload.cluster.epoch_s
    if (recorded_s == NEVER).any():
        raise InputError(f"{workload.name}: a comparison with squeue --start requires the recorded start of each job")
    forecasts, wanted = [], dict[str, list[int]]()
    for case in replay_start_forecasts(workload, policy, progress, as_recorded=True):
        id, start_s, at_s = workload.jobs[case.job].job.id, int(recorded_s[case.job]), case.told.issued_at_s
        if at_s < start_s:  # otherwise, the job started late in the replay
            key = ids.get(id, str(id)), at_s + epoch_s
            forecasts.append((key, start_s, case.told.median_s, case.told.pinball_s(start_s)))
            wanted.setdefault(key[0], []).append(key[1])
    found = _nearest_estimates(path, wanted)
    pairs = [(found[each[0]][1], each) for each in forecasts if each[0] in found]
    known = [(estimate_s - epoch_s, key[1], *rest) for estimate_s, (key, *rest) in pairs if estimate_s is not None]
    if not known:
        raise InputError(
            f"{path}: no estimated start within {NEAREST_S} s of any of the {len(forecasts):,} forecasts (N/A for "
            f"{len(pairs):,} of them). The file must cover the trace's cluster and weeks. If it does, set the trace's "
            "time zone with --zone"
        )
    estimate_s, at_unix_s, start_s, median_s, losses_s = np.array(known).T
    slurm_losses_s = np.array([pinball_loss_s((int(row[0]),) * len(LEVELS), int(row[2])) for row in known])
    days, day = np.unique(at_unix_s // _DAY_S, return_inverse=True)
    sums, counts, drawn = np.bincount(day, losses_s - slurm_losses_s), np.bincount(day), draw_resample_counts(len(days))
    return {
        "cases": len(known), "without_estimate": len(pairs) - len(known), "days": len(days),
        "slurm": _forecast_error_statistics(slurm_losses_s, estimate_s - start_s),
        "forecast": _forecast_error_statistics(losses_s, median_s - start_s),
        "pinball_difference_s": float(sums.sum() / len(known)),
        "pinball_difference_interval_s": bootstrap_interval((drawn @ sums) / (drawn @ counts), len(days)),
    }  # fmt: skip


def _forecast_error_statistics(losses_s: FloatArray, errors_s: FloatArray) -> dict[str, float]:
    """Return mean pinball loss, mean absolute error, and percentages of close starts."""
    sizes_s = np.abs(errors_s)
    within = {f"within_{minutes}_min": 100 * float((sizes_s <= 60 * minutes).mean()) for minutes in (1, 10)}
    return {"pinball_s": float(losses_s.mean()), "absolute_error_s": float(sizes_s.mean()), **within}


def _nearest_estimates(path: Path, wanted: Mapping[str, Sequence[int]]) -> _Nearest:
    """Return the estimate nearest to each moment for which a job has a forecast.

    The moments in `wanted` are ascending.
    """
    found: _Nearest = {}
    for at_s, job, start_s in read_slurm_start_estimates(path):
        moments = wanted.get(job, ())
        for moment_s in moments[bisect_left(moments, at_s - NEAREST_S) : bisect_right(moments, at_s + NEAREST_S)]:
            distance_s = abs(at_s - moment_s)
            if distance_s < found.get((job, moment_s), (NEVER, None))[0]:
                found[job, moment_s] = distance_s, start_s
    return found
