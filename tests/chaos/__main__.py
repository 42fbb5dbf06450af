"""Run histories until the bridge has been killed `--kills` times. The exit code is 1 if a history fails.

python -m tests.chaos [--kills N] [--seed N] [--histories N] [--blind] [--beset] [--leaving] [--advised] [--preempting]
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from tests.chaos.history import CHANGES, History, history_of
from tests.chaos.shrink import shrunk
from tests.chaos.world import play

SHOWN = 60
"""Number of printed lines of a failing history's log."""


def tell(history: History) -> None:
    """Print the errors, the command that repeats them, and the shortest failing history found."""
    options = f"--seed {history.seed} --histories 1"
    print(f"seed {history.seed} goes wrong; again (with --blind and the other options as given):")
    print(f"python -m tests.chaos {options}")
    short = shrunk(history, lambda each: bool(play(each).wrongs))
    verdict = play(short)
    print(f"{len(short.steps)} of {len(history.steps)} steps are enough, with {short}".partition(", steps=")[0] + ")")
    print("\n".join(f"  {step}" for step in short.steps))
    print("which went like this:\n" + "\n".join(f"  {line}" for line in verdict.log[-SHOWN:]))
    print("\n".join(f"wrong: {words}" for words in verdict.wrongs))


def main() -> int:
    """Run histories, starting from a seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000, help="maximum number of kills")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first history; the next has the next seed")
    parser.add_argument("--histories", type=int, default=10**9, help="maximum number of histories")
    for name, change in CHANGES.items():
        parser.add_argument(f"--{name}", action="store_true", help=(change.__doc__ or "").partition("\n")[0])
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    began_s, wrong = time.process_time(), 0
    for seed in itertools.count(given.seed):
        if counts["killed"] >= given.kills or counts["histories"] >= given.histories:
            break
        history = history_of(seed)
        for name, change in CHANGES.items():
            history = change(history) if getattr(given, name) else history
        verdict = play(history)
        counts += verdict.counts
        counts["histories"] += 1
        if verdict.wrongs:
            wrong += 1
            tell(history)
    print(", ".join(f"{what} {count}" for what, count in counts.most_common()))
    print(f"{counts['killed']} kills in {counts['histories']} histories, {wrong} of them wrong; "
          f"{time.process_time() - began_s:.0f} s of CPU time")  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
