"""Who is in which account: where a user names none, and which association a job of a partition has."""

from __future__ import annotations

import pytest

from cpsched.errors import InvalidValue
from cpsched.site.accounts import AccountingLimits, Association, AssociationTree

ROWS = (
    Association("root", parent=-1),
    Association("lab", parent=0),
    Association("office", parent=0, priority=3),
    Association("lab", "ada", parent=1),
    Association("office", "bob", parent=2),
    Association("office", "ada", parent=2, priority=7),
    Association("office", "ada", "gpu", parent=2),
)


def test_a_user_of_several_accounts_who_names_none_is_in_the_first_that_lists_the_user():
    accounts = AssociationTree(ROWS)
    assert [accounts.default_account(user) for user in ("ada", "bob", "eve")] == ["lab", "office", ""]


@pytest.mark.parametrize(
    ("account", "user", "partition", "at"),
    [
        ("office", "ada", "gpu", 6),
        ("office", "ada", "main", 5),
        ("office", "ada", "", 5),
        ("lab", "ada", "gpu", 3),
        ("lab", "bob", "", None),
    ],
)
def test_the_association_for_a_partition_comes_before_the_users_own(account, user, partition, at):
    assert AssociationTree(ROWS).find(account, user, partition) == at


def test_an_account_knows_what_it_is_below_and_users_are_no_accounts():
    accounts = AssociationTree(ROWS)
    assert accounts.parent_by_account == {"root": "", "lab": "root", "office": "root"}
    assert accounts.highest_priority == 7


def test_accounts_without_a_root_are_refused():
    with pytest.raises(InvalidValue, match="must contain a root"):
        AssociationTree(())


def test_limits_list_what_is_set_and_a_limit_of_zero_is_one():
    assert dict(AccountingLimits(group_jobs=0, group_tres={})) == {"group_jobs": 0}
