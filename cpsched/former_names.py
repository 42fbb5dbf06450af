"""Former names of modules and classes, which plug-ins, journals and command lines may still hold.

`tools/rename.py` writes both tables. They go two minor releases after 0.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "cpsched.catalogue": "cpsched.registry",
    "cpsched.collector": "cpsched.gc_pause",
    "cpsched.compile": "cpsched.jit",
    "cpsched.compile.cache": "cpsched.jit.kernel_cache",
    "cpsched.compile.doors": "cpsched.jit.compiled_functions",
    "cpsched.compile.handles": "cpsched.jit.handles",
    "cpsched.compile.jit": "cpsched.jit.decorators",
    "cpsched.compile.linking": "cpsched.jit.linking",
    "cpsched.compile.progress": "cpsched.jit.compile_progress",
    "cpsched.compile.structs": "cpsched.jit.structs",
    "cpsched.fit": "cpsched.feasibility",
    "cpsched.goals": "cpsched.goal_presets",
    "cpsched.lazy": "cpsched.lazy_imports",
    "cpsched.listing": "cpsched.registration",
    "cpsched.model.bounds": "cpsched.model.value_bounds",
    "cpsched.model.numbers": "cpsched.model.sentinels",
    "cpsched.model.table": "cpsched.model.job_table",
    "cpsched.plugins": "cpsched.plugin_discovery",
    "cpsched.reasons": "cpsched.wait_reasons",
    "cpsched.run_times": "cpsched.run_time_model",
    "cpsched.spelling": "cpsched.parsing",
    "cpsched.spelling.amounts": "cpsched.parsing.slurm_limits",
    "cpsched.spelling.gres": "cpsched.parsing.gres",
    "cpsched.spelling.node_lists": "cpsched.parsing.hostlist",
    "cpsched.spelling.pbs": "cpsched.parsing.pbs_select",
    "cpsched.whereabouts": "cpsched.traceback_origin",
}
"""Former module -> present one."""

CLASSES: Mapping[str, str] = {
    "cpsched.catalogue:Broken": "BrokenPlugin",
    "cpsched.catalogue:Catalogue": "Registry",
    "cpsched.catalogue:Catalogues": "PolicyRegistries",
    "cpsched.compile.cache:Filed": "CacheLocation",
    "cpsched.compile.cache:Shelf": "KernelCache",
    "cpsched.compile.doors:Door": "CompiledKernel",
    "cpsched.compile.doors:Inner": "CompiledSubroutine",
    "cpsched.compile.handles:FieldPlaces": "FieldOffsets",
    "cpsched.compile.handles:Kind": "ArrayType",
    "cpsched.compile.jit:Growing": "GrowColumns",
    "cpsched.compile.linking:DoorCompiler": "KernelCompiler",
    "cpsched.compile.linking:DoorLibrary": "KernelLibrary",
    "cpsched.compile.linking:Linked": "SubroutineLibrary",
    "cpsched.compile.progress:CompilingStopped": "CompilationCancelled",
    "cpsched.errors:DecisionFault": "PolicyError",
    "cpsched.errors:PluginFault": "PluginError",
    "cpsched.errors:Unloadable": "PluginLoadError",
    "cpsched.goals:Stop": "Preset",
    "cpsched.lazy:face": "lazy_attributes",
    "cpsched.listing:FromFile": "FileParameter",
    "cpsched.listing:Listing": "Registration",
    "cpsched.listing:ReadFile": "FileReader",
    "cpsched.metrics:Measures": "ScheduleData",
    "cpsched.model.snapshot:Scene": "ClusterState",
    "cpsched.model.table:Places": "PlacementPool",
    "cpsched.planning:Placed": "PlannedQueue",
    "cpsched.planning:Scheme": "ListScheduler",
    "cpsched.run_times:MeanShares": "MeanRunShares",
    "cpsched.run_times:Ran": "RunTimeSample",
    "cpsched.run_times:RunTimes": "RunTimeModel",
    "cpsched.whereabouts:CodePlace": "SourceLocation",
}
"""`package.module:Class` as it was -> the present name of the class, without its module."""


def present_words(words: str) -> str:
    """`package.module:attribute` or `package.module` as it is called now."""
    module, colon, path = words.partition(":")
    name, dot, rest = path.partition(".")
    present = CLASSES.get(f"{module}:{name}", name)
    return f"{MODULES.get(module, module)}{colon}{present}{dot}{rest}"


def former_name(package: str, name: str) -> str | None:
    """The present name of a class that a package passes on; None where it has had no other."""
    return next(
        (new for old, new in CLASSES.items() if old.split(".")[0] == package and old.endswith(f":{name}")), None
    )
