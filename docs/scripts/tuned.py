"""Every number that measurement chose: its value in the code, what it trades, the command that shows it, and when."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, NamedTuple

from docs.scripts.markdown import code, table

NOT_KEPT = ""
"""No command that measured the number is kept: whoever changes it measures it anew."""


class Tuned(NamedTuple):
    """A number of the code, `module:name`, `module:Class.parameter` or `module:TABLE[key].field`.

    `value` is the one that was measured: a test fails where the code has another. `command` shows what the number does;
    `measured` is the day on which it came to the repository.
    """

    where: str
    value: object
    trades: str
    command: str
    measured: str


_L, _K, _C = "cpsched.dispatchers.lookahead.", "cpsched.kernels.", "cpsched.dispatchers.cp."
_LARGE = f"{_L}objectives:OBJECTIVES[large-jobs]"
_LOOK = "python -m tests.benchmarks.lookahead "
_UNSEEN = "python -m tests.benchmarks.unseen "
_TAILS = "python -m tests.benchmarks.narrow --of tests.benchmarks.tails:Tails "
_ROUNDS = "python -m tests.benchmarks.cp_rounds rounds.jsonl.gz"
_NODES = "python -m tests.benchmarks.lists nodes"
_QUANTILE, _RUN_TIMES = "cpsched.predictors.quantile:", "cpsched.run_times:"

TUNED = (
    Tuned(f"{_LARGE}.r", 1.3, "wide jobs against narrow ones: lower raises the longest waits, higher AF and BSLD",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_LARGE}.flat", 0.5, "small jobs against large ones: higher lowers AF and BSLD, raises the longest waits",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_LARGE}.aged_s", 43_200, "means against tails: faster ageing shortens the longest waits, raises AF",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_LARGE}.ageing_power", 4, "when ageing sets in: a higher power later, and harder",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_LARGE}.effort", 60, "plans against time: none costs 5 points of AF, five times as many bring 0.3",
          _LOOK + "ablation", "2026-11-22"),
    Tuned(f"{_L}objectives:OBJECTIVES[slowdown].e", -0.5, "short jobs against the others", _LOOK + "systems",
          "2026-11-21"),
    Tuned(f"{_L}objectives:OBJECTIVES[default].e", -0.5, "short jobs against the others", _UNSEEN + "lookahead",
          "2026-11-23"),
    Tuned(f"{_L}objectives:OBJECTIVES[default].ageing_power", 4, "when ageing sets in: 8 with `aged_by` 0.55 has"
          " better means, and AWF 0.3 points higher", _TAILS + "by=0.55,power=8,come=0.5", "2026-11-23"),
    Tuned(f"{_L}objectives:OBJECTIVES[default].area", 0.3, "AWF and P2SF against the mean wait: 0.2 raises both by"
          " half a point to a point", _UNSEEN + "lookahead", "2026-11-23"),
    Tuned(f"{_L}objectives:OBJECTIVES[default].aged_by", 0.3, "tails against means: less raises the mean wait, more"
          " the longest", _UNSEEN + "lookahead", "2026-11-23"),
    Tuned(f"{_L}objectives:OBJECTIVES[waits].e", -0.5, "short jobs against the others",
          _UNSEEN + "lookahead:objective=waits", "2026-11-24"),
    Tuned(f"{_L}objectives:OBJECTIVES[waits].ageing_power", 4, "when ageing sets in: as in `default`", NOT_KEPT,
          "2026-11-24"),
    Tuned(f"{_L}objectives:OBJECTIVES[waits].aged_by", 1.0, "the same, for those who want short waits",
          _UNSEEN + "lookahead:objective=waits", "2026-11-24"),
    Tuned(f"{_L}dispatcher:LEAST_AGED_S", 60.0, "ageing on a machine where nobody waits", NOT_KEPT, "2026-11-23"),
    Tuned(f"{_K}baseline:FADES", 0.9998, "tails of a quiet month against means after one long wait", NOT_KEPT,
          "2026-11-23"),
    Tuned(f"{_L}objectives:OBJECTIVES[bsld].reserve", 0.05, "room for short jobs to come against use of the machine",
          _LOOK + "quality", "2026-11-21"),
    Tuned(f"{_K}costs:TYPICAL", 0.75, "which area counts as typical; the mean area raises the longest waits",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_K}costs:BOUND_FROM", 0.5, "tails against means: from 0.7 on the longest wait rises from 90 to 116 %",
          _LOOK + "quality", "2026-11-22"),
    Tuned(f"{_K}moves:SHARES", (25, 25, 20, 10, 10, 10), "which changes of an order are tried; no move is missed on all"
          " traces, none is best on all", _LOOK + "moves", "2026-11-22"),
    Tuned(f"{_L}dispatcher:Lookahead.horizon", 100, "plans against time: 20 lowers AF and raises P2SF",
          _LOOK + "ablation", "2026-11-22"),
    Tuned(f"{_L}dispatcher:Lookahead.covered", 1000, "expected starts against time in queues of thousands",
          _LOOK + "deep", "2026-11-21"),
    Tuned(f"{_L}dispatcher:Lookahead.work", 1500, "time of the slowest rounds (p99 halves) against long queues",
          _LOOK + "deep", "2026-11-21"),
    Tuned(f"{_L}dispatcher:Lookahead.overdue_h", 168.0, "no starvation against AF: bears on objectives without ageing",
          _LOOK + "ablation", "2026-11-22"),
    Tuned(f"{_L}dispatcher:LEAST_WORK", 100, "plans against time on a slow machine", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_L}dispatcher:JUDGED_FROM", 50, "how soon the pace is believed against noise", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_K}search_state:POOL_JOBS", 20, "`work` on a pool: as on nodes, P2SF on KTH rose from 98 to 101 %",
          _LOOK + "quality", "2026-11-21"),
    Tuned("cpsched_bridge.adapters.slurm.options:DECIDE_S", 0.1, "search against the time of a cycle on a slow machine",
          "python -m tests.slurm.figures --burst 0 --rounds 0 --busy-rounds 40 --cpus 0.25", "2026-11-21"),
    Tuned(f"{_K}pool:COVERED", 2000, "expected starts against time in queues of thousands",
          "python -m tests.benchmarks.lists queue", "2026-11-21"),
    Tuned(f"{_K}pool:LOOK_AGAIN", 250, "looks at the rest of a queue against planning it",
          "python -m tests.benchmarks.lists queue", "2026-11-21"),
    Tuned(f"{_K}groups:BLOCK", 64, "blocks passed over against nodes looked at within a block", _NODES, "2026-11-20"),
    Tuned(f"{_K}nodes:REMEMBERED", 16, "requests compared against requests tried in vain", _NODES, "2026-11-20"),
    Tuned(f"{_K}nodes:SOME_GROUPS", 256, "groups copied against empty groups passed over", _NODES, "2026-11-21"),
    Tuned(f"{_K}nodes:SLOTTED", 64, "reservations compared against slots looked for in vain", _NODES, "2026-11-21"),
    Tuned(f"{_K}cp.considered:SHAPES", 64, "requests compared against requests counted anew", NOT_KEPT, "2026-11-20"),
    Tuned(f"{_C}recipe:Recipe.model_s", 0.25, "rounds that the solver sees against time that nothing interrupts",
          _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}kit:ConstraintDispatcher.first_limit_s", 0.01, "time of a search that brings nothing against plans",
          _ROUNDS, "2026-11-20"),
    Tuned(f"{_C}certain:_NODES", 1000, "proofs against 10 ms of tree; more nodes rarely prove more", _ROUNDS,
          "2026-11-20"),
    Tuned(f"{_C}certain:_DIVES", 16, "plans made on the way against 2 ms each", _ROUNDS, "2026-11-20"),
    Tuned(f"{_C}certain:_SHAKES", 16, "better plans at hand against time before the solver", _ROUNDS, "2026-11-20"),
    Tuned(f"{_C}limit:_SHARES", 8, "the first search against those that follow, under `effort`", NOT_KEPT,
          "2026-11-20"),
    Tuned(f"{_C}by_pool:TASK_S", 2e-5, "the forecast of building a model of pools", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}by_nodes:_INTERVAL_S", 4e-5, "the forecast of building a model of intervals", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}by_positions:_PAIR_S", 1e-7, "the forecast of a first propagation, by pair", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}by_positions:_PART_S", 0.00015, "the same, by part", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}by_positions:_ELEMENT_S", 1e-5, "the same, by Element", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}by_positions:_STEP_S", 5e-8, "the same, by entry of a staircase", _ROUNDS, "2026-11-21"),
    Tuned(f"{_C}variables:_MOST_STEPS", 50_000, "bounds that the solver sees against 0.15 us an entry", _ROUNDS,
          "2026-11-21"),
    Tuned(f"{_C}sat:_CELLS", 16, "how exactly P2SF is tabulated against the size of the model", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_C}sat:_ROUNDS", 3, "how near P2SF comes to the least ratio against time", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_QUANTILE}QuantilePredictor.quantile", 0.8, "promises kept against machine use", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_QUANTILE}QuantilePredictor.remember", 40, "steadiness against change", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_RUN_TIMES}_HALVED_AFTER", 10, "steadiness against following changes", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_RUN_TIMES}PRIOR", 3.0, "the site's habits against the user's own", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_RUN_TIMES}_SITE_REMEMBERS", 400, "steadiness against following changes", NOT_KEPT, "2026-11-21"),
    Tuned(f"{_RUN_TIMES}LOOK_EVERY", 50, "time against a fresh quantile of the site", NOT_KEPT, "2026-11-21"),
    Tuned("cpsched.outlook.calibration:_NEAREST", 120, "narrow intervals where told starts differ against few to learn"
          " from", NOT_KEPT, "2026-11-23"),
    Tuned("cpsched.outlook.calibration:_STEP", 0.005, "how soon intervals hold again against how steady they are: 0.02"
          " makes them wider", NOT_KEPT, "2026-11-23"),
    Tuned("cpsched.outlook.draws:_LIKE", 9, "how steady the intervals of jobs are that nobody draws, against how near"
          " to them those stand that are drawn", NOT_KEPT, "2026-11-23"),
    Tuned("cpsched_bridge.watch.outlook:BASIS_SHARE", 20.0, "how fresh the plan is that answers users' questions"
          " against the CPU time that questions take", NOT_KEPT, "2026-11-23"),
    Tuned("cpsched_bridge.watch.outlook:MOST_REDRAWN", 200, "time of an answer behind a long queue against how exactly"
          " the jobs before it are drawn", NOT_KEPT, "2026-11-23"),
)  # fmt: skip

OTHERS = {
    "a bound, so that no sum leaves its bits": (
        "PLENTY",
        "MOST_UNITS",
        "LARGEST",
        "OUT",
        "MOST_AHEAD",
        "_BITS",
        "_LEAST",
        "_LARGEST",
    ),
    "a code or a set of bits": (
        "WITHHELD",
        "ALL_MOVES",
        "ALL_CANDIDATES",
        "NO_PLACES",
        "LEFT_SHIFTED",
        "TO_ITS_END",
        "OFF",
        "TOLD",
    ),
    "a unit, or a rounding": ("HOUR", "DAY_S", "_DAY_S", "CLOSE"),
    "what Slurm does, by its source (docs/twin.md)": ("GAP_S", "FIRST_WINDOW_S", "DOUBLINGS", "_MOST_INT"),
    "before anything has happened": ("LONG_AGO_S",),
    "speed alone, by judgement: any number makes the same schedules": ("FEW_TRIES",),
}
"""Numbers of kernels, dispatchers and predictors that nothing measured, and why they are what they are."""


def value_of(where: str) -> Any:
    """The number that the code has there."""
    module, _, path = where.partition(":")
    name, _, last = path.partition(".")
    table_name, key, _ = name.replace("]", "[").split("[") if "[" in name else (name, "", "")
    found = getattr(import_module(module), table_name)
    if key:
        return getattr(found[key], last)
    return inspect.signature(found).parameters[last].default if last else found


def numbers() -> str:
    """The table of all of them."""
    heading = ("number", "value", "what it trades", "measure it with", "chosen")
    rows = (
        (code(row.where.replace(":", ".")), code(value_of(row.where)), row.trades,
         code(row.command) if row.command else "no command is kept", row.measured)
        for row in TUNED
    )  # fmt: skip
    return table(heading, rows)
