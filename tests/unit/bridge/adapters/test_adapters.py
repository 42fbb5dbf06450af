from importlib import import_module

import pytest

from cpsched_bridge.adapters import Adapter
from cpsched_bridge.settings import Section


@pytest.mark.parametrize("name", ["mock", "slurm"])
def test_an_adapter_offers_options_with_defaults_and_descriptions_and_a_way_to_connect(name: str) -> None:
    adapter = import_module(f"cpsched_bridge.adapters.{name}")
    assert isinstance(adapter, Adapter)
    assert issubclass(adapter.Options, Section)
    assert adapter.Options() == adapter.Options.model_validate({})
    assert all(field.description for field in adapter.Options.model_fields.values())


def test_a_module_without_options_is_none() -> None:
    assert not isinstance(import_module("json"), Adapter)
