import pytest

from tests.bridges import a_bridge


@pytest.fixture
def bridge_at(tmp_path):
    """Build bridges over one state directory: a second one finds what the first left."""
    return lambda backend, **changes: a_bridge(tmp_path, backend, **changes)
