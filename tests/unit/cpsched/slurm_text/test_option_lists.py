"""Reading slurm.conf's lists as slurmctld does."""

import pytest

from cpsched.slurm_text.option_lists import OptionList, OptionRemark, has_flag, parse_c_int, parse_config, parse_flags


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0s", 0), ("10_000", 10), ("", 0), ("x5", 0), (" +7", 7), ("-1", -1), ("1.9", 1), ("2147483648", -(2**31)),
        ("9" * 5000, -1), ("4294967297", 1),
    ],
)  # fmt: skip
def test_reads_numbers_as_atoi(text, number):
    """The values that glibc's `atoi` returns on a 64-bit machine."""
    assert parse_c_int(text) == number


def test_finds_first_occurrence_anywhere_in_any_case():
    """`xstrcasestr` knows neither words nor commas."""
    options = OptionList("RL_Enable;rl_bucket_size=9,xrl_refill_rate=3,rl_bucket_size=4")
    assert options.has("rl_enable")
    assert options.find_text("rl_bucket_size") == "9"
    assert (options.find_int("rl_refill_rate"), options.find_int("rl_refill_period")) == (3, None)


def test_names_options_inside_unknown_word():
    found = list(OptionList("x;defer;n=5, good").list_remarks(("defer",), ("n",), ("good",)))
    assert found == [OptionRemark("unknown", "x;defer;n", "5", "defer and n")]
    assert str(found[0]) == "x;defer;n=5 is not one known option; Slurm reads defer and n in it"


def test_remark_quotes_no_control_characters_and_bounded_text():
    (remark,) = OptionList("a\x1b" + 500 * "b").list_remarks((), ())
    assert str(remark).isprintable()
    assert len(str(remark)) < 130


def test_flags_ignore_case_order_and_underscores():
    flags = parse_flags("NoFairTree, GANG,,(null)")
    assert flags == {"nofairtree", "gang"}
    assert has_flag(flags, "NO_FAIR_TREE")
    assert not has_flag(flags, "NO_FAIR")


def test_reads_settings_of_scontrol_and_slurm_conf():
    printed = (
        "Configuration data as of 2026-11-22T20:00:00\nClusterName             = lab\n"
        "PreemptMode             = GANG,REQUEUE\nLaunchParameters        = (null)\n#ClusterName=old\n"
        "ClusterName = other\n\nSlurmctld(primary) at here is UP\n"
    )
    assert parse_config(printed) == {"ClusterName": "lab", "PreemptMode": "GANG,REQUEUE", "LaunchParameters": ""}
