"""Start forecasts beside a boosted model of the queue's features: `python -m tests.benchmarks.start_forecasts`.

Each window of a trace is replayed under the twin of Slurm's scheduler. The boosted model (Brown et al., 2022) predicts
the quantiles of the wait from the job's position, the load, its request and the hour, with scikit-learn's
HistGradientBoostingRegressor (the extra `bench`). Like the forecasts, it learns only from jobs that have
started: it is trained again for each tenth of the judged forecasts. CPSCHED_TRACES is the folder of the traces.
Printed per window: mean pinball losses in seconds of the forecasts, the model and the twin's own estimates, and the
loss of the forecasts in percent of each. The last line compares with an oracle: the same forecasts with true run times
instead of sampled ones, so that only later arrivals are uncertain.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from cpsched.dispatchers.slurm.slurm_dispatcher import SlurmTwinDispatcher
from cpsched.forecast import LEVELS, StartForecast, pinball_loss_s
from cpsched.forecast.start_sampling import job_subset, planned_starts_for_run_times
from cpsched.model import IntArray, Snapshot
from cpsched.policy import Policy
from cpsched.predictors.walltime import WalltimePredictor
from cpsched_sim.cluster.replay import ReplayOptions
from cpsched_sim.experiments.bootstrap_statistics import FloatArray
from cpsched_sim.start_time_accuracy import StartForecastAccuracy, StartForecastReplay
from cpsched_sim.traces.trace_jobs import TraceJob
from cpsched_sim.workloads.workload_loader import load

WINDOWS = {
    "KTH-SP2": ("KTH-SP2.swf.gz", "pool", 16000, 3500),
    "Theta": ("ALCF-Theta-2022nov-2023dec-users.swf.gz", "pool", 14000, 2500),
    "Gaia": ("UniLu-Gaia-2014-2.swf.gz", "pool", 20000, 5000),
}
"""File, system, first job and number of jobs."""
TRAININGS = 10
MIN_WAIT_S = 60
"""Seconds added to waits before the logarithm."""


class FeatureReplay(StartForecastReplay):
    """A replay that records the features of each forecast, by (slot, time)."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.features: dict[tuple[int, int], list[float]] = {}

    @override
    def _issue_forecasts(
        self, snapshot: Snapshot, plan_s: IntArray, chosen: Sequence[int]
    ) -> dict[int, tuple[StartForecast, int]]:
        found = super()._issue_forecasts(snapshot, plan_s, chosen)
        now_s, jobs = snapshot.now_s, snapshot.queued_jobs()
        cores = np.array([job.request.units * max(1, job.request.per_unit[0]) for job in jobs], float)
        areas = cores * [job.walltime_s for job in jobs]
        load = [float(snapshot.free[:, 0].sum()), len(snapshot.running), len(jobs), areas.sum()]
        for at, slot in enumerate(snapshot.queue.tolist()):
            if slot in found:
                own = [at, areas[:at].sum(), cores[at], jobs[at].request.units, jobs[at].walltime_s]
                clock = [now_s - jobs[at].submit_s, now_s // 3600 % 24, now_s // 86_400 % 7]
                self.features[slot, now_s] = [*load, *own, *clock]
        return found


class OracleReplay(StartForecastReplay):
    """A replay whose forecasts know all run times, but no later submission."""

    def __init__(self, jobs: Sequence[TraceJob], *words: Any) -> None:
        super().__init__(jobs, *words)
        self._run_s = np.array([item.run_s for item in jobs])

    @override
    def _sample_starts(self, snapshot: Snapshot, plan_s: IntArray) -> IntArray:
        slots = np.append(snapshot.queue, snapshot.running)
        run_s: IntArray = self._run_s[slots][:, None]
        return planned_starts_for_run_times(snapshot, job_subset(snapshot.table, slots), plan_s, run_s)


def predict_boosted(features: FloatArray, issued_s: IntArray, start_s: IntArray, judged: IntArray) -> FloatArray:
    """Return predicted starts (s) for the rows `judged`, float64[J, levels], learned from jobs started before."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-not-found]

    waits = np.log(start_s - issued_s + MIN_WAIT_S)
    parts = []
    for part in np.array_split(judged, TRAININGS):
        known = start_s < issued_s[part].min()
        columns = [
            HistGradientBoostingRegressor(
                loss="quantile", quantile=level, max_iter=200, learning_rate=0.05, random_state=0
            )
            .fit(features[known], waits[known])
            .predict(features[part])
            for level in LEVELS
        ]
        predicted_s = np.maximum(0, np.exp(np.sort(np.array(columns).T, axis=1)) - MIN_WAIT_S)
        parts.append(issued_s[part][:, None] + predicted_s)
    return np.concatenate(parts)


def compare_window(name: str) -> str:
    """Return the lines of a window."""
    file, system, first, count = WINDOWS[name]
    window = load(Path(os.environ["CPSCHED_TRACES"]) / file, system, lenient=True).job_range(first, count)

    def new_policy() -> Policy:
        return Policy(WalltimePredictor(), SlurmTwinDispatcher(), "walltime")

    replay = FeatureReplay(window.jobs, window.cluster, new_policy(), ReplayOptions(strict=True))
    known = OracleReplay(window.jobs, window.cluster, new_policy(), ReplayOptions(strict=True)).replay_all()
    half = len(window.jobs) // 2
    oracle = StartForecastAccuracy.of([case for case in known if case.job >= half])
    cases = sorted(replay.replay_all(), key=lambda case: case.told.issued_at_s)
    features = np.array([replay.features[case.job, case.told.issued_at_s] for case in cases])
    issued_s = np.array([case.told.issued_at_s for case in cases])
    start_s = np.array([case.start_s for case in cases])
    judged = np.flatnonzero([case.job >= half for case in cases])
    all_ours = StartForecastAccuracy.of([cases[at] for at in judged.tolist()])
    boosted_s = predict_boosted(features, issued_s, start_s, judged).astype(np.int64).tolist()
    losses = np.array(
        [
            (cases[at].told.pinball_s(cases[at].start_s), pinball_loss_s(tuple(quantiles), cases[at].start_s))
            for at, quantiles in zip(judged.tolist(), boosted_s, strict=True)
        ]
    )
    twin = np.array(
        [
            (case.told.pinball_s(case.start_s), pinball_loss_s((case.planned_s,) * len(LEVELS), case.start_s))
            for case in (cases[at] for at in judged.tolist())
            if case.planned_s is not None
        ]
    )
    ours, boosted = losses.mean(axis=0)
    beside, estimate = twin.mean(axis=0)
    return (
        f"{name}: {len(judged)} forecasts: {ours:.0f} s, boosted model {boosted:.0f} s ({100 * ours / boosted:.0f} %)\n"
        f"{len(twin)} with an estimate: {beside:.0f} s, twin {estimate:.0f} s ({100 * beside / estimate:.0f} %)\n"
        f"median width of 80 % intervals: {all_ours.median_width_80_s:.0f} s, {all_ours.coverage['80']:.0f} % hold; "
        f"of the oracle: {oracle.median_width_80_s:.0f} s, {oracle.coverage['80']:.0f} %; "
        f"its loss: {oracle.pinball_s:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", default=",".join(WINDOWS))
    for name in parser.parse_args().windows.split(","):
        print(compare_window(name), flush=True)


if __name__ == "__main__":
    main()
