import pytest

from cpsched.errors import PluginLoadError
from cpsched_bridge.program.bootstrap import load_adapter
from cpsched_bridge.settings import Section


@pytest.mark.parametrize("name", ["mock", "pbs", "slurm"])
def test_adapter_defines_documented_options_and_connect(name: str) -> None:
    adapter = load_adapter(name)
    assert issubclass(adapter.Options, Section)
    assert adapter.Options() == adapter.Options.model_validate({})
    assert all(field.description for field in adapter.Options.model_fields.values())


def test_rejects_module_without_options() -> None:
    with pytest.raises(PluginLoadError, match="must define Options and connect; missing: Options and connect"):
        load_adapter("os.path")
