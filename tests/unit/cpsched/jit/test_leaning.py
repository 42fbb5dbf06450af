"""What `cpsched.jit` takes from inside of Numba: names that no release promises to keep.

CONTRIBUTING.md says what to do where a release lacks one. `linking` is used only with the releases in
`compiled_functions.KNOWN_TO_WORK`. Without the names that the other files need, nothing can be compiled.
"""

import ast
import importlib
from operator import attrgetter
from pathlib import Path

from cpsched.jit import compiled_functions

LEANS_ON = {
    "kernel_cache.py": (
        "numba.core.compiler:CompileResult._rebuild",
        "numba.core.compiler:CompileResult._reduce",
        "numba.core.serialize:dumps",
    ),
    "compiled_functions.py": (
        "numba.core.compiler_lock:global_compiler_lock",
        "numba.core.dispatcher:Dispatcher.compile",
        "numba.core.dispatcher:Dispatcher.disable_compile",
        "numba.core.dispatcher:Dispatcher._numba_type_",
    ),
    "shared_structs.py": ("numba.core.runtime.nrt:MemInfo", "numba.core.runtime.nrt:_nrt.c_helpers"),
    "decorators.py": ("numba.core.registry:cpu_target.typing_context.resolve_value_type",),
    "numba_struct_types.py": (
        "numba.core.cgutils:create_struct_proxy",
        "numba.core.datamodel.models:OpaqueModel",
        "numba.core.datamodel.models:StructModel",
        "numba.core.extending:lower_getattr_generic",
        "numba.core.extending:lower_setattr_generic",
        "numba.core.imputils:impl_ret_borrowed",
        "numba.core.imputils:impl_ret_untracked",
        "numba.core.typing.templates:AttributeTemplate",
        "numba.core.types:BaseTuple.from_types",
    ),
    "kernel_linking.py": (
        "numba.core.codegen:JITCodeLibrary._finalize_dynamic_globals",
        "numba.core.codegen:JITCodeLibrary._get_module_for_linking",
        "numba.core.codegen:JITCodeLibrary._raise_if_finalized",
        "numba.core.codegen:JITCodeLibrary.finalize",
        "numba.core.codegen:JITCPUCodegen._add_module",
        "numba.core.codegen:JITCPUCodegen._library_class",
        "numba.core.compiler:Compiler.compile_extra",
        "numba.core.targetconfig:TargetConfig.values",
        "numba.core.types.functions:BaseFunction.get_call_type",
        "numba.core.targetconfig:ConfigStack.top_or_none",
        "numba.core.targetconfig:TargetConfig._values",
        "numba.core.targetconfig:TargetConfig.options",
        "numba.core.types.functions:BaseFunction.get_impl_key",
    ),
}
"""By file of this package: module and name of each."""


def is_there(name):
    module, _, path = name.partition(":")
    try:
        attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return True


def test_installed_numba_has_all_required_internals():
    assert [name for needed in LEANS_ON.values() for name in needed if not is_there(name)] == []


def test_lists_every_file_that_imports_numba_internals():
    files = Path(compiled_functions.__file__).parent.glob("*.py")
    nodes = [(file.name, node) for file in files for node in ast.walk(ast.parse(file.read_text()))]
    modules = [(file, node.module or "") for file, node in nodes if isinstance(node, ast.ImportFrom)]
    assert {file for file, module in modules if module.startswith(("numba.core", "numba.experimental"))} == set(
        LEANS_ON
    )
