import pytest

from cpsched_bridge.store.ledger import Ledger


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "state.sqlite", durable=False)
