"""Read jobs from a pandas frame: from `Workload.to_frame` or the user's own table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from cpsched.errors import require
from cpsched_sim.systems.system_file import SystemFile
from cpsched_sim.traces.parquet_trace_reader import ParquetTraceReader
from cpsched_sim.traces.trace_record import ProcessorCountRequest, TraceReader, TraceRecord
from cpsched_sim.workloads.workload_loader import Workload, read_workload

if TYPE_CHECKING:
    from cpsched_sim.data_frames import DataFrame


class DataFrameTraceReader(ParquetTraceReader):
    """A frame as a trace. Error messages name the row and column."""

    NEEDED: ClassVar = ("submit_s", "run_s", "processors")
    ALSO: ClassVar = ("job", "walltime_s", "user", "name", "queue", "account", "recorded_start_s")

    def __init__(self, frame: DataFrame, columns: Mapping[str, str], lenient: bool) -> None:
        TraceReader.__init__(self, Path("frame"), lenient)
        known = {*self.NEEDED, *self.ALSO}
        for name, theirs in columns.items():
            require(name in known, "columns", name, f"must be one of {', '.join(sorted(known))}")
            require(theirs in frame.columns, f"columns[{name!r}]", theirs, "must be a column of the frame")
        table = frame.reset_index() if frame.index.name == columns.get("job", "job") else frame
        table = table.rename(columns={theirs: name for name, theirs in columns.items()})
        missing = [name for name in self.NEEDED if name not in table.columns]
        require(
            not missing,
            "columns",
            ", ".join(missing),
            "must be in the frame; use columns={NAME: COLUMN} for other names",
        )
        table = table[[name for name in table.columns if name in known]].astype(object)
        self.rows = table.where(table.notna(), None).to_dict("records")

    @override
    def _lines(self) -> Iterator[tuple[int, str]]:
        for number, row in enumerate(self.rows, 1):
            self.row = {name: _convert_pandas_time(value) for name, value in row.items()}
            yield number, "row"

    @override
    def _read_row(self) -> TraceRecord | None:
        submit_s, run_s, processors = map(self._read_count, self.NEEDED)
        if run_s < 1 or processors < 1:
            self.tally.dropped["run time below 1 s, or no processors"] += 1
            return None
        walltime_s = self._read_whole_number("walltime_s") or self._walltime_without_limit_s(run_s)
        if run_s > walltime_s:
            self.tally.cut["run time longer than the requested time"] += 1
        id, recorded_s = self._read_whole_number("job"), self._read_whole_number("recorded_start_s")
        user, name, queue, account = map(self._read_text, ("user", "name", "queue", "account"))
        return TraceRecord(
            self.line if id is None else id,
            submit_s,
            min(run_s, walltime_s),
            walltime_s,
            ProcessorCountRequest(processors),
            user,
            name,
            queue,
            account,
            start_s=None if recorded_s is None else self._plausible_start_s(submit_s, recorded_s),
        )


def _convert_pandas_time(value: Any) -> Any:
    """Convert a `Timestamp` or `Timedelta` to whole seconds.

    A timestamp is in UTC by default. Other values are returned unchanged.
    """
    if hasattr(value, "total_seconds"):
        return int(value.total_seconds())
    return int(value.timestamp()) if hasattr(value, "timestamp") else value


def from_frame(
    frame: DataFrame,
    columns: Mapping[str, str] | None = None,
    system: str | SystemFile | None = None,
    *,
    processors: int | None = None,
    lenient: bool = False,
) -> Workload:
    """Create a workload from a pandas frame with one row per job.

    - `frame` must have the columns submit_s, run_s (seconds) and processors (whole numbers). Optional columns are job
      (the job's number, which may also be the index), walltime_s, user, name, queue, account and recorded_start_s.
      `columns` maps these to the frame's own names: `{"submit_s": "SubmitTime"}`. Timestamps and timedeltas are
      converted to seconds.
    - `system` is a name or a system file. The default is a pool of `processors`, or of the largest job's number of
      processors.

    Raise `InvalidValue` for missing columns, and `InvalidTrace` with row and column for a job that breaks a rule or can
    never fit. If `lenient`, count such jobs in `notes` instead.
    """
    reader = DataFrameTraceReader(frame, columns or {}, lenient)
    counts = [int(row["processors"]) for row in reader.rows if isinstance(row["processors"], int | float)]
    reader.header = {"MaxProcs": str(max(counts, default=0) if processors is None else processors)}
    return read_workload(reader, system)
