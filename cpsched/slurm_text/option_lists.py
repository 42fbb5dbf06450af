"""Parse slurm.conf's lists of options and of flags, such as `SchedulerParameters` and `PriorityFlags`.

slurmctld looks for an option anywhere in the text, ignores case, and takes the first occurrence (`xstrcasestr` in
common/xstring.c). It reads numbers with C's `atoi`. It ignores unknown words, and uses its default for a number that is
out of bounds. So a text from a running cluster is never an error here: what Slurm ignores or replaces is a remark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cpsched.errors import escape_controls

_C_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?\d{1,40})", re.ASCII)
_CONFIG_LINE = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t\r]*$", re.MULTILINE | re.ASCII)
_MAX_QUOTED_CHARS = 60

OptionRemarkKind = Literal["unknown", "repeated", "excess value", "no value", "partly read", "out of bounds"]


@dataclass(frozen=True, slots=True)
class OptionRemark:
    """A word in an option list that Slurm ignores, or reads differently than it looks.

    `used` is what Slurm uses instead: a number, or the options that it finds in an unknown word.
    """

    kind: OptionRemarkKind
    name: str
    value: str = ""
    used: str = ""

    def __str__(self) -> str:
        name, word = (escape_controls(text[:_MAX_QUOTED_CHARS]) for text in (self.name, f"{self.name}={self.value}"))
        match self.kind:
            case "unknown" if self.used:
                return f"{word} is not one known option; Slurm reads {self.used} in it"
            case "unknown":
                return f"{name} is unknown here, and Slurm ignores unknown options"
            case "repeated":
                return f"{name} is set more than once; Slurm reads the first one"
            case "excess value":
                return f"{word}: the option takes no value; Slurm ignores the value, and the option is set"
            case "no value":
                return f"{name} has no value, so Slurm ignores it"
            case "partly read":
                return f"{word}: Slurm reads {self.used}"
            case "out of bounds":
                return f"{word} is out of bounds; Slurm uses {self.used}"


@dataclass(frozen=True, slots=True)
class OptionList:
    """The text of an option list, in which options are found as Slurm finds them."""

    text: str

    def has(self, name: str) -> bool:
        """Return whether Slurm finds this option without a value, such as `defer`."""
        return name.lower() in self.text.lower()

    def find_text(self, name: str) -> str | None:
        """Return the text after the first `name=`, in lower case, or None."""
        _, equals, rest = self.text.lower().partition(f"{name.lower()}=")
        return rest.partition(",")[0] if equals else None

    def find_int(self, name: str, bits: int = 32) -> int | None:
        """Return the number that Slurm reads after the first `name=`, or None."""
        text = self.find_text(name)
        return None if text is None else parse_c_int(text, bits)

    def list_words(self) -> Iterator[tuple[str, str | None]]:
        """Yield the name, in lower case, and the value of each word between commas."""
        for word in filter(None, map(str.strip, self.text.split(","))):
            name, equals, value = word.partition("=")
            yield name.lower(), value if equals else None

    def list_remarks(
        self, flags: Collection[str], numbers: Collection[str], others: Collection[str] = ()
    ) -> Iterator[OptionRemark]:
        """Yield a remark for each odd word.

        `flags` take no value, and `numbers` take one. The values of `others` are not read.
        """
        seen = set[str]()
        for name, value in self.list_words():
            if name not in (*flags, *numbers, *others):
                word = name if value is None else f"{name}={value.lower()}"
                inside = [each for each in (*flags, *(f"{number}=" for number in numbers)) if each in word]
                yield OptionRemark("unknown", name, value or "", " and ".join(each.strip("=") for each in inside))
            elif name in seen:
                yield OptionRemark("repeated", name)
            elif name in flags and value is not None:
                yield OptionRemark("excess value", name, value)
            elif name in numbers and value is None:
                yield OptionRemark("no value", name)
            elif name in numbers and value is not None and str(parse_c_int(value, 64)) != value:
                yield OptionRemark("partly read", name, value, str(parse_c_int(value)))
            seen.add(name)


def parse_c_int(text: str, bits: int = 32) -> int:
    """Return the number at the beginning of a text, as C's `atoi` reads it, or `atoll` with 64 bits.

    >>> [parse_c_int(text) for text in ("10_000", "3s", "", "-1", "x", "4294967297")]
    [10, 3, 0, -1, 0, 1]
    """
    match = _C_NUMBER.match(text)
    number = max(-(2**63), min(2**63 - 1, int(match[1]))) if match else 0
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def parse_flags(text: str) -> frozenset[str]:
    """Return the words in a comma-separated list, in lower case.

    >>> sorted(parse_flags("GANG, REQUEUE"))
    ['gang', 'requeue']
    """
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip() not in ("", "(null)"))


def has_flag(words: Iterable[str], wanted: str) -> bool:
    """Return whether a flag is in `words`, ignoring case and underscores."""
    plain = wanted.lower().replace("_", "")
    return any(word.lower().replace("_", "") == plain for word in words)


def parse_config(text: str) -> dict[str, str]:
    """Return the settings in the output of `scontrol show config` or in a slurm.conf.

    "(null)" is "". If a name occurs more than once, its first value counts.
    """
    found: dict[str, str] = {}
    for name, value in _CONFIG_LINE.findall(text):
        found.setdefault(name, "" if value == "(null)" else value)
    return found


class KnownOptions(NamedTuple):
    """The options of one setting: those that change starts, with what Slurm does, and those that do not."""

    unmodelled: Mapping[str, str]
    harmless: frozenset[str]


def _split_names(names: str) -> frozenset[str]:
    return frozenset(names.split())


CONTROLLER_OPTIONS: Mapping[str, KnownOptions] = {
    "SlurmctldParameters": KnownOptions(
        {"max_powered_nodes": "Slurm starts no job that would power up more nodes"},
        _split_names(
            "allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout conmgr_max_connections "
            "conmgr_quiesce_timeout conmgr_read_timeout conmgr_threads conmgr_use_poll conmgr_wait_write_delay "
            "conmgr_write_timeout disable_triggers enable_async_reply enable_configless enable_expedited_requeue "
            "enable_rpc_queue enable_stepmgr health_check_report idle_on_node_suspend max_dbd_msg_action "
            "no_quick_restart node_reg_mem_percent power_save_interval power_save_min_interval "
            "preempt_send_user_signal reboot_from_controller reconfig_on_restart rl_bucket_size rl_enable rl_log_freq "
            "rl_refill_period rl_refill_rate rl_table_size threadpool threadpool_preallocate threadpool_preserve "
            "user_resv_delete validate_nodeaddr_threads workerpool_threads"
        ),
    ),
    "DependencyParameters": KnownOptions(
        {}, _split_names("disable_remote_singleton kill_invalid_depend max_depend_depth")
    ),
    "LaunchParameters": KnownOptions(
        {},
        _split_names(
            "batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm "
            "interactive_step_set_cpu_freq lustre_no_flush mem_sort mpir_use_nodeaddr slurmstepd_memlock "
            "slurmstepd_memlock_all srun_exclusive_allocation test_exec ulimit_pam_adopt use_interactive_step"
        ),
    ),
    "TopologyParam": KnownOptions(
        {
            "dragonfly": "Slurm spreads large jobs over leaf switches",
            "topomaxsizeunroll": "Slurm may try only some of the numbers of nodes in a job's range",
        },
        _split_names("blockasnoderank noctldinaddrany noinaddrany routepart routetree switchasnoderank topooptional"),
    ),
}
"""Options in slurm.conf that change no priority and no scheduling loop, by setting, in lower case.

The names come from slurm.conf(5) and the sources of Slurm 22.05 to 26.11. Of other lists of options,
`SchedulerParameters` belong to the twin, `PreemptParameters` to the order of victims, and `SelectTypeParameters` to the
nodes and jobs that they describe.

Federations, in which disable_remote_singleton counts, are not managed. A job that Slurm expedites is left to Slurm.
"""


def find_unmodelled_options(config: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each option that changes starts but is not modelled, and for each unknown one.

    `config` is the configuration as `parse_config` returns it.
    """
    for setting, known in CONTROLLER_OPTIONS.items():
        options = OptionList(config.get(setting, ""))
        for name, effect in known.unmodelled.items():
            if options.has(name):
                yield f"{setting}: {name} is not modelled: {effect}"
        for remark in options.list_remarks((), (), known.unmodelled.keys() | known.harmless):
            if remark.kind == "unknown":
                yield f"{setting}: {remark}"
