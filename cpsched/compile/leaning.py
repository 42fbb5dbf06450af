"""What this package takes from inside of Numba: names that no release promises to keep.

If a release lacks one, `missing` names it and our file that needs it; CONTRIBUTING.md says what to do then.
`linking` and `lookups` are used only with the releases in `doors.KNOWN_TO_WORK`. Without the names that the other
files need, nothing can be compiled.
"""

from __future__ import annotations

import importlib

LEANS_ON: dict[str, tuple[str, ...]] = {
    "cache.py": (
        "numba.core.compiler:CompileResult._rebuild",
        "numba.core.compiler:CompileResult._reduce",
        "numba.core.serialize:dumps",
    ),
    "doors.py": (
        "numba.core.compiler_lock:global_compiler_lock",
        "numba.core.dispatcher:Dispatcher.compile",
        "numba.core.dispatcher:Dispatcher.disable_compile",
        "numba.core.dispatcher:Dispatcher._numba_type_",
    ),
    "jit.py": ("numba.core.registry:cpu_target.typing_context.resolve_value_type",),
    "structs.py": (
        "numba.core.cgutils:create_struct_proxy",
        "numba.core.datamodel.models:OpaqueModel",
        "numba.core.datamodel.models:StructModel",
        "numba.core.extending:lower_getattr_generic",
        "numba.core.extending:lower_setattr_generic",
        "numba.core.imputils:impl_ret_borrowed",
        "numba.core.imputils:impl_ret_untracked",
        "numba.core.typing.templates:AttributeTemplate",
        "numba.core.runtime.nrt:MemInfo",
        "numba.core.runtime.nrt:_nrt.c_helpers",
        "numba.core.types:BaseTuple.from_types",
    ),
    "linking.py": (
        "numba.core.codegen:JITCodeLibrary._finalize_dynamic_globals",
        "numba.core.codegen:JITCodeLibrary._get_module_for_linking",
        "numba.core.codegen:JITCodeLibrary._raise_if_finalized",
        "numba.core.codegen:JITCodeLibrary.finalize",
        "numba.core.codegen:JITCPUCodegen._add_module",
        "numba.core.codegen:JITCPUCodegen._library_class",
        "numba.core.compiler:Compiler.compile_extra",
        "numba.core.targetconfig:TargetConfig.values",
        "numba.core.types.functions:BaseFunction.get_call_type",
    ),
    "lookups.py": (
        "numba.core.targetconfig:ConfigStack.top_or_none",
        "numba.core.targetconfig:TargetConfig._values",
        "numba.core.targetconfig:TargetConfig.options",
        "numba.core.types.functions:BaseFunction.get_impl_key",
    ),
}
"""By file of this package: module and name of each."""


def missing() -> list[str]:
    """The names that the installed Numba lacks, each with our file that needs it."""
    return [f"{name} ({file})" for file, names in LEANS_ON.items() for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
