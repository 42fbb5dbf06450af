import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpsched_bridge.adapters.pbs.translation.job_sort_formula import (
    MOST_SIGNS,
    FormulaNotComputable,
    JobSortFormula,
    compute_terms,
)

JOB = {
    "Priority": "12",
    "eligible_time": "01:00:05",
    "accrue_type": "2",
    "Resource_List": {"ncpus": "4", "mem": "2gb", "walltime": "00:10:00", "cpsched_points": "7", "note": "x"},
}
QUEUE = {"Priority": "30"}


def value(text: str) -> float:
    formula = JobSortFormula.parse(text)
    return formula.evaluate(compute_terms(formula, JOB, QUEUE))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpsched_points", 7),
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
def test_a_formula_is_computed_as_pbs_does_it(text: str, found: float) -> None:
    assert value(text) == pytest.approx(found)


@pytest.mark.parametrize(
    "text", ["1 / ngpus", "log(ngpus)", "note + 1 / 0", "10.0 ** 1000", "1e308 * 10", "sqrt(-1)", "sqrt(1, 2)"]
)
def test_a_value_that_cannot_be_computed_is_0(text: str) -> None:
    assert value(text) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fairshare_perc + cpsched_points", "uses fairshare_perc, which PBS's scheduler alone knows"),
        ("100 * fairshare_factor", "uses fairshare_factor"),
        ("__import__('os').system('true')", "is no arithmetic"),
        ("ncpus.real", "is no arithmetic"),
        ("[ncpus][0]", "is no arithmetic"),
        ("eval(1)", "is no arithmetic"),
        ("'a' * 10", "is no arithmetic"),
        ("ncpus << 40", "is no arithmetic"),
        ("1 < ncpus < 3", "is no arithmetic"),
        ("not ncpus", "is no arithmetic"),
        ("~ncpus", "is no arithmetic"),
        ("ncpus +", "is no arithmetic"),
        ("", "is no arithmetic"),
        ("(" * 900, "is no arithmetic"),
        ("1+" * 600 + "1", "is longer than 1024 signs"),
    ],
)
def test_a_formula_that_is_not_known_outside_of_pbs_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(FormulaNotComputable, match=why):
        JobSortFormula.parse(text)


def test_the_longest_formula_is_read() -> None:
    assert value("1".ljust(MOST_SIGNS)) == 1


def test_what_neither_job_nor_queue_says_is_0() -> None:
    formula = JobSortFormula.parse("accrue_type + job_priority + queue_priority + eligible_time + ncpus")
    assert formula.evaluate(compute_terms(formula, {}, {})) == 0


def test_functions_are_no_terms() -> None:
    assert JobSortFormula.parse("min(ncpus, 2) + max(mem, 1)").names == {"ncpus", "mem"}


@pytest.mark.parametrize(
    ("text", "adds"),
    [
        ("cpsched_points", True),
        ("(10 * ncpus) + cpsched_points", True),
        ("cpsched_points + eligible_time - ncpus", True),
        ("ncpus - cpsched_points", False),
        ("2 * cpsched_points", False),
        ("cpsched_points + cpsched_points", False),
        ("max(cpsched_points, ncpus)", False),
        ("ncpus", False),
        ("cpsched_points * 0 + cpsched_points", False),
        ("-cpsched_points", False),
    ],
)
def test_points_count_only_where_each_of_them_is_one_more(text: str, adds: bool) -> None:
    assert JobSortFormula.parse(text).has_unit_boost_weight is adds


@given(st.text(st.sampled_from("ncpus eligible_time()+-*/%.,0129 if else<>=!'\"[]{}\\\n\x00"), max_size=60))
def test_no_text_is_more_than_a_number_or_a_refusal(text: str) -> None:
    try:
        found = JobSortFormula.parse(text)
    except FormulaNotComputable:
        return
    assert isinstance(found.evaluate(compute_terms(found, JOB, QUEUE)), float)
