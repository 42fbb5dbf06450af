"""Predictor `user-median`: what a user's jobs usually take."""

from collections import defaultdict
from statistics import median_low

import cpsched


class UserMedian(cpsched.Predictor):
    """The median run time of the user's ended jobs so far; the walltime where there is none."""

    def __init__(self) -> None:
        self.runs_s = defaultdict(list)

    def predict(self, job):
        return min(median_low(self.runs_s[job.user]), job.walltime_s) if self.runs_s[job.user] else job.walltime_s

    def learn(self, ended):
        self.runs_s[ended.job.user].append(ended.run_s)
