import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.adapters.pbs.pbs_objects import PbsJob, PbsQueue, parse_job, parse_queue
from cpsched_bridge.adapters.pbs.translation.pbs_ranking import (
    MAX_FORMULA_CHARS,
    FormulaNotComputable,
    JobSortFormula,
    compute_formula_terms,
)

JOB = parse_job(
    {
        "Priority": "12",
        "eligible_time": "01:00:05",
        "accrue_type": "2",
        "Resource_List": {"ncpus": "4", "mem": "2gb", "walltime": "00:10:00", "cpsched_boost": "7", "note": "x"},
    }
)
QUEUE = parse_queue("workq", {"Priority": "30"})


def value(text: str) -> float:
    formula = JobSortFormula.parse(text)
    return formula.evaluate(compute_formula_terms(formula, JOB, QUEUE))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpsched_boost", 7),
        ("eligible_time / 3600 + queue_priority", 3605 / 3600 + 30),
        ("10 * ncpus + job_priority - 2 ** 3", 44),
        ("mem", 2 * 1024 * 1024),
        ("walltime % 7 + walltime // 7", 5 + 85),
        ("min(ncpus, 2) + max(1, 2, 3) + abs(-4) + sqrt(16)", 13),
        ("1000 if ncpus >= 4 else 1", 1000),
        ("-ncpus + +accrue_type", -2),
        ("ngpus * 5", 0),
        ("floor(2.7) + 10 * ceil(2.2) + 100 * round(2.6)", 332),
        ("log10(1000) + 10 * log2(8) + 100 * exp(0) + 1000 * log(1)", 133),
        ("pow(2, 3) + 10 * int(-2.5) + 100 * float(3) + fabs(-0.5)", 288.5),
        ("(1 if ncpus < 4 else 2) + (10 if ncpus <= 4 else 20) + (100 if ncpus == 4 else 200)", 112),
        ("(1 if ncpus > 4 else 2) + (10 if ncpus >= 4 else 20) + (100 if ncpus != 4 else 200)", 212),
    ],
)
def test_evaluates_formula_like_pbs(text: str, found: float) -> None:
    assert value(text) == pytest.approx(found)


@pytest.mark.parametrize(
    "text", ["1 / ngpus", "log(ngpus)", "note + 1 / 0", "10.0 ** 1000", "1e308 * 10", "sqrt(-1)", "sqrt(1, 2)"]
)
def test_uncomputable_value_is_0(text: str) -> None:
    assert value(text) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fairshare_perc + cpsched_boost", "uses fairshare_perc, which only PBS's scheduler can compute"),
        ("100 * fairshare_factor", "uses fairshare_factor"),
        ("__import__('os').system('true')", "is not an arithmetic expression"),
        ("ncpus.real", "is not an arithmetic expression"),
        ("[ncpus][0]", "is not an arithmetic expression"),
        ("eval(1)", "is not an arithmetic expression"),
        ("'a' * 10", "is not an arithmetic expression"),
        ("ncpus << 40", "is not an arithmetic expression"),
        ("1 < ncpus < 3", "is not an arithmetic expression"),
        ("not ncpus", "is not an arithmetic expression"),
        ("~ncpus", "is not an arithmetic expression"),
        ("ncpus +", "is not an arithmetic expression"),
        ("", "is not an arithmetic expression"),
        ("(" * 900, "is not an arithmetic expression"),
        ("1+" * 600 + "1", "is longer than 1024 characters"),
    ],
)
def test_rejects_formula_with_unknown_terms(text: str, why: str) -> None:
    with pytest.raises(FormulaNotComputable, match=why):
        JobSortFormula.parse(text)


def test_parses_longest_formula() -> None:
    assert value("1".ljust(MAX_FORMULA_CHARS)) == 1


def test_missing_term_is_0() -> None:
    formula = JobSortFormula.parse("accrue_type + job_priority + queue_priority + eligible_time + ncpus")
    assert formula.evaluate(compute_formula_terms(formula, PbsJob(), PbsQueue("workq"))) == 0


def test_function_names_are_not_terms() -> None:
    assert JobSortFormula.parse("min(ncpus, 2) + max(mem, 1)").names == {"ncpus", "mem"}


@pytest.mark.parametrize(
    ("text", "adds"),
    [
        ("cpsched_boost", True),
        ("(10 * ncpus) + cpsched_boost", True),
        ("cpsched_boost + eligible_time - ncpus", True),
        ("ncpus - cpsched_boost", False),
        ("2 * cpsched_boost", False),
        ("cpsched_boost + cpsched_boost", False),
        ("max(cpsched_boost, ncpus)", False),
        ("ncpus", False),
        ("cpsched_boost * 0 + cpsched_boost", False),
        ("-cpsched_boost", False),
    ],
)
def test_detects_unit_boost_weight(text: str, adds: bool) -> None:
    assert JobSortFormula.parse(text).has_unit_boost_weight is adds


@given(st.text(st.sampled_from("ncpus eligible_time()+-*/%.,0129 if else<>=!'\"[]{}\\\n\x00"), max_size=60))
def test_any_text_gives_number_or_rejection(text: str) -> None:
    try:
        found = JobSortFormula.parse(text)
    except FormulaNotComputable:
        return
    assert isinstance(found.evaluate(compute_formula_terms(found, JOB, QUEUE)), float)
