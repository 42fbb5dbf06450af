"""Fair share on trees that are small enough to compute by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import Association, AssociationTree
from cpsched_sim.site.fair_share import (
    DecayedUsage,
    FairShareTree,
    classic_fair_share_factors,
    decay_per_second,
    fair_tree_factors,
)

#         root
#      a(40)   b(60)
#   ann bob    cid dee
TREE = FairShareTree(
    parents=(-1, 0, 0, 1, 1, 2, 2),
    shares=(1, 40, 60, 1, 1, 1, 3),
    users=(False, False, False, True, True, True, True),
)
ANN, BOB, CID, DEE = 3, 4, 5, 6


def use(**seconds):
    names = {"ann": ANN, "bob": BOB, "cid": CID, "dee": DEE}
    column = np.zeros(7)
    for name, value in seconds.items():
        column[names[name]] = value
    return column


@pytest.mark.parametrize(
    ("seconds", "factors"),
    [
        # a: 0.4 of the share, 0.2 of the use: ratio 2; b: 0.6 and 0.8: 0.75. ann 0.5/0.25 = 2, bob 0.5/0.75; cid
        # 0.25/0.5, dee 0.75/0.5.
        ({"ann": 50, "bob": 150, "cid": 400, "dee": 400}, [1.0, 0.75, 0.25, 0.5]),
        # a user of the worse account never passes the better one
        ({"ann": 100, "bob": 100, "cid": 0, "dee": 800}, [1.0, 1.0, 0.5, 0.25]),
        # equal users share a rank, and the next loses both
        ({"ann": 100, "bob": 100, "cid": 400, "dee": 400}, [1.0, 1.0, 0.25, 0.5]),
        # Both accounts have an infinite ratio: the second is tied with the first, so its users share the rank of the
        # last user before them.
        ({}, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_fair_tree_ranks_accounts_then_users(seconds, factors):
    assert fair_tree_factors(TREE, use(**seconds))[[ANN, BOB, CID, DEE]].tolist() == factors


@pytest.mark.parametrize(
    ("tree", "seconds", "factors"),
    [
        # eve has half of the share and of the use, and so has the account: its first user is tied with her
        (FairShareTree((-1, 0, 0, 1, 1), (1, 1, 1, 2, 1), (False, False, True, True, True)), [0, 0, 2, 1, 1],
         [0, 0, 1.0, 1.0, 1 / 3]),
        # a share of 0 is last, and a parent's share is first
        (FairShareTree((-1, 0, 0, 0), (1, 0, 5, None), (False, True, True, True)), [0, 0, 10, 90],
         [0, 1 / 3, 2 / 3, 1]),
    ],
)  # fmt: skip
def test_fair_tree_ranks_ties_and_special_shares(tree, seconds, factors):
    assert fair_tree_factors(tree, seconds).tolist() == pytest.approx(factors)


def test_parent_share_users_are_siblings_of_account():
    tree = FairShareTree((-1, 0, 1, 0), (1, None, 30, 70), (False, False, True, True))
    assert (tree.effective_parents, tree.shares_among_siblings[[2, 3]].tolist()) == ((-1, 0, 0, 0), [0.3, 0.7])


def test_classic_factor_halves_per_used_share():
    # a: share 0.4, use 0.2 of all; ann: own use 0.05, effective 0.05 + (0.2 - 0.05) / 2 = 0.125, share 0.2.
    factors = classic_fair_share_factors(TREE, use(ann=50, bob=150, cid=400, dee=400))
    assert (factors[1], factors[ANN]) == (pytest.approx(2 ** -(0.2 / 0.4)), pytest.approx(2 ** -(0.125 / 0.2)))
    # dee: own 0.4, effective 0.4 + (0.8 - 0.4) * 0.75 = 0.7, share 0.45.
    assert factors[DEE] == pytest.approx(2 ** -(0.7 / 0.45))


def test_classic_dampening_weakens_factor():
    assert classic_fair_share_factors(TREE, use(ann=50, bob=150), 5)[1] == pytest.approx(2 ** -(1.0 / 0.4 / 5))


def test_classic_depth_oblivious_scales_by_parent_ratio():
    # a: effective 0.2, ratio 0.5; ann: (0.05 / 0.2) / (0.2 / 0.4) = 0.5 beside it. Both below 1: not bent.
    factors = classic_fair_share_factors(TREE, use(ann=50, bob=150, cid=400, dee=400), depth_oblivious=True)
    assert factors[ANN] == pytest.approx(2 ** -(0.5 * 0.5))
    # bob: own ratio 1.5, parent's 0.5: bent by 1 / (1 + (5 ln 0.5)^2).
    bent = 1 / (1 + (5 * np.log(0.5)) ** 2)
    assert factors[BOB] == pytest.approx(2 ** -(0.5 * 1.5**bent))


def test_usage_halves_in_half_life():
    week_s = 7 * 86400
    use = DecayedUsage.of(1, week_s, used=[1000.0])
    use.advance(week_s)
    assert use.used[0] == pytest.approx(500, rel=1e-3)


def test_usage_does_not_decay_without_half_life():
    use = DecayedUsage.of(1, 0, used=[1000.0])
    use.add_rate(0, 4, 0)
    use.advance(100)
    assert decay_per_second(0) == 1.0
    assert use.used[0] == 1400


def test_usage_of_running_job_matches_slurm_ticks():
    half_life_s, keep = 3600.0, decay_per_second(3600.0)
    use, ticked = DecayedUsage.of(1, half_life_s), 0.0
    use.add_rate(0, 8.0, 0)
    for _ in range(7200):
        ticked = ticked * keep + 8 * keep**0.5
    use.advance(7200)
    assert use.used[0] == pytest.approx(ticked, rel=1e-6)


def test_late_usage_change_equals_timely_one():
    late, in_time = DecayedUsage.of(2, 3600), DecayedUsage.of(2, 3600)
    for use in (late, in_time):
        use.add_rate(1, 4.0, 100)
    in_time.add_rate(1, -4.0, 500)
    in_time.advance(900)
    late.advance(900)
    late.add_rate(1, -4.0, 500)
    assert late.used[1] == pytest.approx(in_time.used[1])
    assert late.rate[1] == in_time.rate[1] == 0


@pytest.mark.parametrize(
    ("parents", "rule"),
    [((), "must contain a root"), ((0,), "must begin with a root"), ((-1, 1), "must come before its children"),
     ((-1, -1), "must come before its children")],
)  # fmt: skip
def test_rejects_associations_that_form_no_tree(parents, rule):
    with pytest.raises(InvalidValue, match=rule):
        AssociationTree(tuple(Association(f"a{at}", parent=parent) for at, parent in enumerate(parents)))


def test_tree_of_accounts_has_their_shares():
    rows = (
        Association("root", parent=-1),
        Association("lab", shares=3),
        Association("lab", "ann", parent=1, shares=None),
    )
    tree = FairShareTree.from_accounts(AssociationTree(rows))
    assert (tree.parents, tree.shares, tree.users) == ((-1, 0, 1), (1, 3, None), (False, False, True))
