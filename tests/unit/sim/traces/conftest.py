import pytest


@pytest.fixture
def read_one(read):
    """Return the only record that the module's `read` returns."""

    def record(*rows, **options):
        (found,) = read(*rows, **options)
        return found

    return record
