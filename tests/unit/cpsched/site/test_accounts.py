"""Accounts of users: the default account, and the association of a job in a partition."""

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


def test_default_account_is_first_that_lists_user():
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
def test_partition_association_precedes_general_one(account, user, partition, at):
    assert AssociationTree(ROWS).find(account, user, partition) == at


def test_account_knows_parents_and_excludes_users():
    accounts = AssociationTree(ROWS)
    assert (accounts.parent_by_account, accounts.highest_priority) == ({"root": "", "lab": "root", "office": "root"}, 7)


def test_rejects_accounts_without_root():
    with pytest.raises(InvalidValue, match="must contain a root"):
        AssociationTree(())


def test_limits_list_set_values_including_zero():
    assert dict(AccountingLimits(group_jobs=0, group_tres={})) == {"group_jobs": 0}
