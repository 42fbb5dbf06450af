"""The reasons why jobs wait, with the jobs for each kind of reason."""

from cpsched.model import PendingCode, PendingReason
from cpsched_bridge.web.page.pending_reasons_summary import summarize_reasons
from tests.unit.bridge.web.page.views import a_waiting, an_unscheduled, other


def test_lists_contents_of_each_kind_by_frequency():
    jobs = [a_waiting(n, reason=other(f"mercury is in retrograde for {n} days")) for n in range(5)]
    jobs += [
        a_waiting(10, reason=other("venus")),
        an_unscheduled(11, reason=PendingReason(PendingCode.CLUSTER, ("QOSMaxJobs", "8 of 8 taken"))),
    ]
    jobs += [an_unscheduled(12, reason=PendingReason(PendingCode.BACKED_OFF, ("QOSMaxJobs", "user ada")))]
    others, ineligible = summarize_reasons({"other": 6, "ineligible": 2, "never": 0}, jobs)
    assert (others.text, others.jobs) == ("other reasons", 6)
    assert others.common_reasons == [("mercury is in retrograde for days", 5), ("venus", 1)]
    assert (ineligible.text, ineligible.common_reasons) == ("may not start yet", [("QOSMaxJobs", 2)])


def test_names_at_most_3_reasons():
    (cause,) = summarize_reasons({"other": 9}, [a_waiting(n, reason=other(chr(97 + n) * 3)) for n in range(9)])
    assert len(cause.common_reasons) == 3
