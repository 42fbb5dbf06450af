import pytest

from cpsched.errors import PluginLoadError
from cpsched_bridge.program.bootstrap import load_adapter
from cpsched_bridge.settings import Section


@pytest.mark.parametrize("name", ["mock", "pbs", "slurm"])
def test_an_adapter_offers_options_with_defaults_and_descriptions_and_a_way_to_connect(name: str) -> None:
    adapter = load_adapter(name)
    assert issubclass(adapter.Options, Section)
    assert adapter.Options() == adapter.Options.model_validate({})
    assert all(field.description for field in adapter.Options.model_fields.values())


def test_a_module_without_options_is_none() -> None:
    with pytest.raises(PluginLoadError, match="has no Options and no connect"):
        load_adapter("os.path")
