import pytest

from cpsched.errors import PluginLoadError
from cpsched_bridge.program.bootstrap import load_adapter


def test_rejects_module_without_options() -> None:
    with pytest.raises(PluginLoadError, match="must define Options and connect; missing: Options and connect"):
        load_adapter("os.path")
