"""Names for shell completion.

The names are listed here, because importing the dispatchers would take 0.7 CPU s per key press.
"""

from __future__ import annotations

from collections.abc import Callable

NAMES = {
    "cpsched.dispatchers": "advised cp-af cp-awf cp-bsld cp-bsld+ cp-off-af cp-off-awf cp-off-bsld cp-off-p2sf cp-p2sf "
    "cp-p2sf+ cph easy easy-sjbf ebf fcfs greedy hcp hcp1 hcp19 hcp2 list-boost list-f1 list-f2 list-f3 "
    "list-f4 list-laf list-ljf list-priority list-reg list-saf list-sjf list-spf list-unicep "
    "list-wfp3 ljf lookahead pcp pcp1 pcp19 pcp2 pcp20 prb sjf slurm",
    "cpsched.predictors": "last-two oracle profile quantile soft-walltime walltime",
    "cpsched.metrics": "af awf bsld makespan_s mean_slowdown mean_wait_s p2sf utilization",
}
"""The project's names by plug-in group. A test compares them with the registries."""


def make_name_list_completer(group: str) -> Callable[[str], list[str]]:
    """Return a function that completes the last of several comma-separated names.

    The names include those of plug-ins.
    """

    def complete(incomplete: str) -> list[str]:
        from cpsched.plugin_discovery import discover_plugins

        head, comma, begun = incomplete.rpartition(",")
        names = {*NAMES[group].split(), *(plugin.name for plugin in discover_plugins(group))}
        return [f"{head}{comma}{name}" for name in sorted(names) if name.startswith(begun)]

    return complete


complete_dispatcher, complete_predictor, complete_metric = map(make_name_list_completer, NAMES)
