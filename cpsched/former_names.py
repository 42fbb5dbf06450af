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
    "cpsched.kernels.baseline": "cpsched.kernels.virtual_easy",
    "cpsched.kernels.costs": "cpsched.kernels.plan_costs",
    "cpsched.kernels.cp.boxes": "cpsched.kernels.cp.running_rectangles",
    "cpsched.kernels.cp.considered": "cpsched.kernels.cp.startable_jobs",
    "cpsched.kernels.cp.delays": "cpsched.kernels.cp.delay_costs",
    "cpsched.kernels.cp.guide": "cpsched.kernels.cp.search_guide",
    "cpsched.kernels.cp.moments": "cpsched.kernels.cp.plan_moments",
    "cpsched.kernels.cp.state": "cpsched.kernels.cp.cp_state",
    "cpsched.kernels.cp.tree": "cpsched.kernels.cp.branch_and_bound",
    "cpsched.kernels.fit": "cpsched.kernels.fit_rules",
    "cpsched.kernels.groups": "cpsched.kernels.node_classes",
    "cpsched.kernels.layout": "cpsched.kernels.node_layout",
    "cpsched.kernels.lines": "cpsched.kernels.availability",
    "cpsched.kernels.moves": "cpsched.kernels.order_moves",
    "cpsched.kernels.nodes": "cpsched.kernels.node_scheduling",
    "cpsched.kernels.orders": "cpsched.kernels.queue_orders",
    "cpsched.kernels.picking": "cpsched.kernels.node_selection",
    "cpsched.kernels.pool": "cpsched.kernels.pool_scheduling",
    "cpsched.kernels.profile": "cpsched.kernels.pool_profile",
    "cpsched.kernels.ranges": "cpsched.kernels.class_ranges",
    "cpsched.kernels.search": "cpsched.kernels.order_search",
    "cpsched.kernels.slurm": "cpsched.kernels.slurm_passes",
    "cpsched.kernels.state": "cpsched.kernels.scheduling_state",
    "cpsched.kernels.totals": "cpsched.kernels.total_profile",
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
    "cpsched.kernels.baseline:Baseline": "VirtualSchedule",
    "cpsched.kernels.cp.state:Facts": "CpInstance",
    "cpsched.kernels.cp.state:Moment": "PlanMoment",
    "cpsched.kernels.cp.state:Step": "SearchStep",
    "cpsched.kernels.search_state:Counts": "SearchCounts",
    "cpsched.kernels.search_state:Last": "PreviousOrder",
    "cpsched.kernels.search_state:Marks": "UndoMarks",
    "cpsched.kernels.search_state:Price": "PriceParameters",
    "cpsched.kernels.search_state:Queued": "QueueColumns",
    "cpsched.kernels.search_state:Rows": "ProfileRows",
    "cpsched.kernels.search_state:Search": "OrderSearch",
    "cpsched.kernels.search_state:Shared": "CommonPrefix",
    "cpsched.kernels.search_state:Totals": "TotalProfile",
    "cpsched.kernels.search_state:Tried": "CandidateOrder",
    "cpsched.kernels.slurm:Owners": "OwnerColumns",
    "cpsched.kernels.slurm:Passes": "SchedulingPasses",
    "cpsched.kernels.slurm:Rules": "SchedulerRules",
    "cpsched.kernels.slurm:Tally": "BackfillCounts",
    "cpsched.kernels.state:Carried": "IncrementalClasses",
    "cpsched.kernels.state:Draft": "PlanResult",
    "cpsched.kernels.state:Groups": "NodeClasses",
    "cpsched.kernels.state:Heads": "RangeHeap",
    "cpsched.kernels.state:Held": "GrowableColumn",
    "cpsched.kernels.state:Layout": "NodeLayout",
    "cpsched.kernels.state:Method": "ListSchedulerCode",
    "cpsched.kernels.state:Site": "SchedulingState",
    "cpsched.kernels.state:Trial": "PlanWorkspace",
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
