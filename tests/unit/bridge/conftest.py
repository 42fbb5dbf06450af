import pytest

from cpsched_bridge.store.ledger import Ledger
from tests.bridges import a_bridge


@pytest.fixture
def bridge_at(tmp_path):
    """Build bridges over one state directory: a second one finds what the first left."""
    return lambda backend, **changes: a_bridge(tmp_path, backend, **changes)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "state.sqlite", durable=False)
