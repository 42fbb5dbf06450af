"""The site's last weeks, as the bridge saw them: a line for each job that ended, in a file of the state directory.

The tuner replays them. They are noted in memory by the cycle, and written by the tuner's thread, so that a full or slow
disk costs no cycle anything. A line that cannot be read is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cpsched.errors import CpschedError
from cpsched.model import Cluster, EndedJob
from cpsched_bridge.store.database import OWNERS_ALONE
from cpsched_bridge.store.rounds import job_from_json, job_to_json

MOST_BYTES = 64 * 2**20
"""A larger file is halved: its older part goes."""


class WeeksFile:
    """The lines of a bridge; one writer, and readers in other processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, ended: Iterable[tuple[EndedJob, str]]) -> None:
        """Write jobs, each with the name of its node set. Raises `OSError`."""
        lines = [json.dumps([job_to_json(each.job), each.start_s, each.end_s, nodes]) for each, nodes in ended]
        if not lines:
            return
        if self.path.exists() and self.path.stat().st_size > MOST_BYTES:
            self._halve()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(self.path, flags, OWNERS_ALONE), "a", encoding="utf-8") as file:
            file.write("\n".join(["", *lines]))  # a line that was cut off by a full disk ends before ours

    def _halve(self) -> None:
        with self.path.open("rb") as file:
            file.seek(-MOST_BYTES // 2, os.SEEK_END)
            rest = file.read().partition(b"\n")[2]
        draft = self.path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNERS_ALONE), "wb") as new:
            new.write(rest)
        draft.replace(self.path)

    def read(self, cluster: Cluster, from_s: int = 0) -> list[EndedJob]:
        """The jobs that were submitted since `from_s`, each once, by submission. Node sets are those of `cluster`.

        A node set that the cluster does not have any more stands for all nodes. Raises `OSError`.
        """
        found: dict[tuple[int, int], EndedJob] = {}
        sets = {name: number for number, name in enumerate(cluster.node_set_names)}
        for line in self._lines():
            with suppress(ValueError, TypeError, LookupError, CpschedError, RecursionError):
                ended = _ended(json.loads(line), sets)
                if ended.job.submit_s >= from_s and len(ended.job.request.per_unit) == len(cluster.resources):
                    found[ended.job.id, ended.start_s] = ended
        return sorted(found.values(), key=lambda each: (each.job.submit_s, each.job.id))

    def _lines(self) -> Iterator[bytes]:
        if not self.path.exists():
            return
        with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            for line in file.read(MOST_BYTES + 2**20).split(b"\n"):
                if line.strip():
                    yield line


def _ended(value: Any, sets: dict[str, int]) -> EndedJob:
    job, start_s, end_s, nodes = value
    known = job_from_json(job)
    known = replace(known, request=replace(known.request, node_set=sets.get(nodes, 0)), ineligible=None)
    return EndedJob(known, int(start_s), int(end_s))
