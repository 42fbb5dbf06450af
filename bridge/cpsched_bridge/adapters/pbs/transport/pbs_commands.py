"""Send commands to PBS that change jobs, queues, the lease and boosts.

Each argument is validated first, which ensures that user-supplied text remains a single argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cpsched_bridge.adapters.pbs.pbs_objects import PbsScheduler, PbsServer, parse_server
from cpsched_bridge.adapters.pbs.transport.pbs_output_parsing import parse_qmgr_objects
from cpsched_bridge.adapters.pbs.transport.pbs_programs import PbsProgramRunner
from cpsched_bridge.adapters.pbs.transport.pbs_reader import JOB_PATTERN, parse_schedulers
from cpsched_bridge.errors import BackendError, CommandRefused

QUEUE_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
PLACEMENT_PATTERN = re.compile(
    r"\([A-Za-z0-9\[\]._,-]+(?::[A-Za-z][\w-]*=[\w.]+)+\)(?:\+\([^()\s;|&'\"`$\\]+\))*", re.ASCII
)
RESOURCE_PATTERN = re.compile(r"[a-z_]{1,64}", re.ASCII)
LEASE_PATTERN = re.compile(r"[0-9a-f]{1,2000}", re.ASCII)


class PbsCommands:
    """Commands that change PBS's state.

    Each command raises `CommandRefused` if PBS rejected it, and `BackendTimeout` if the result is unknown.
    """

    def __init__(self, programs: PbsProgramRunner) -> None:
        self._programs = programs

    def run_jobs(self, placements: Mapping[str, str], within_s: float) -> dict[str, BackendError | None]:
        """Run jobs on their vnodes now, in parallel. Return the error of each job, or None.

        The caller must check that the jobs fit, because PBS does not.
        """
        errors: dict[str, BackendError | None] = {}
        commands: dict[str, list[str]] = {}
        for job, placement in placements.items():
            try:
                where = _require_match(PLACEMENT_PATTERN, placement)
                commands[job] = ["qrun", "-H", where, _require_match(JOB_PATTERN, job)]
            except CommandRefused as error:
                errors[job] = error
        results = self._programs.run_commands(list(commands.values()), within_s)
        return errors | dict(zip(commands, results, strict=True))

    def close_queue(self, queue: str) -> dict[str, PbsScheduler]:
        """Close a queue to PBS's scheduler. Return the schedulers by name, read after that."""
        return parse_schedulers(self._set_queue_started(queue, False, "list sched"))

    def open_queue(self, queue: str) -> PbsServer:
        """Open a queue to PBS's scheduler. Return the server with only `is_scheduling`, read after that."""
        output = self._set_queue_started(queue, True, "list server scheduling")
        return parse_server(next(iter(parse_qmgr_objects(output, "Server").values()), {}))

    def _set_queue_started(self, queue: str, started: bool, then: str) -> str:
        directive = f"set queue {_require_match(QUEUE_PATTERN, queue)} started = {started}"
        return self._programs.run_directives([directive, then])

    def trigger_scheduling(self) -> None:
        """Trigger a scheduler cycle. This also enables `scheduling` if it was off."""
        self._programs.run_command(["qmgr", "-c", "set server scheduling = True"])

    def move(self, job: str, queue: str) -> None:
        """Move a waiting job to another queue."""
        self._programs.run_command(["qmove", _require_match(QUEUE_PATTERN, queue), _require_match(JOB_PATTERN, job)])

    def set_boost_points(self, jobs: Sequence[str], resource: str, points: int, within_s: float) -> None:
        """Set the points of waiting jobs or whole arrays. PBS cannot remove the resource."""
        wish = f"{_require_match(RESOURCE_PATTERN, resource)}={int(points)}"
        self._programs.run_command(
            ["qalter", "-l", wish, *(_require_match(JOB_PATTERN, job) for job in jobs)], within_s
        )

    def set_walltime(self, job: str, seconds: int, within_s: float) -> None:
        """Set a waiting job's walltime in seconds.

        PBS does the same before it starts a shrink-to-fit job.
        """
        self._programs.run_command(
            ["qalter", "-l", f"walltime={int(seconds)}", _require_match(JOB_PATTERN, job)], within_s
        )

    def write_lease(self, resource: str, text: str) -> None:
        """Write the lease to the server."""
        self._programs.run_command(
            ["qmgr", "-c", f'set server resources_available.{resource} = "{_require_match(LEASE_PATTERN, text)}"']
        )


def _require_match(rule: re.Pattern[str], text: str) -> str:
    if not rule.fullmatch(text):
        raise CommandRefused(f"{text[:80]!r}: contains characters that cannot be sent to PBS")
    return text
