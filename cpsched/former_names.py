"""Map former names of modules, classes and package exports to current names.

Settings, journals and command lines can contain former names. Both tables will be removed two minor releases after
0.1.0.
"""

from __future__ import annotations

from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "cpsched.dispatchers.by_scheme": "cpsched.dispatchers.list_scheduler",
    "cpsched.dispatchers.cp.answer": "cpsched.dispatchers.cp.solve_result",
    "cpsched.dispatchers.cp.by_nodes": "cpsched.dispatchers.cp.node_model",
    "cpsched.dispatchers.cp.by_pool": "cpsched.dispatchers.cp.pool_model",
    "cpsched.dispatchers.cp.by_positions": "cpsched.dispatchers.cp.position_model",
    "cpsched.dispatchers.cp.by_slots": "cpsched.dispatchers.cp.slot_model",
    "cpsched.dispatchers.cp.certain": "cpsched.dispatchers.cp.presolve",
    "cpsched.dispatchers.cp.constraints": "cpsched.dispatchers.cp.position_constraints",
    "cpsched.dispatchers.cp.engine": "cpsched.dispatchers.cp.search_control",
    "cpsched.dispatchers.cp.kit": "cpsched.dispatchers.cp.constraint_dispatcher",
    "cpsched.dispatchers.cp.limit": "cpsched.dispatchers.cp.search_limit",
    "cpsched.dispatchers.cp.objective": "cpsched.dispatchers.cp.cp_objective",
    "cpsched.dispatchers.cp.per_objective": "cpsched.dispatchers.cp.cp_sat_dispatcher",
    "cpsched.dispatchers.cp.recipe": "cpsched.dispatchers.cp.cp_dispatcher_config",
    "cpsched.dispatchers.cp.recipes": "cpsched.dispatchers.cp.papers",
    "cpsched.dispatchers.cp.recipes.cp19": "cpsched.dispatchers.cp.papers.cp19",
    "cpsched.dispatchers.cp.recipes.debs24": "cpsched.dispatchers.cp.papers.debs24",
    "cpsched.dispatchers.cp.recipes.mod17": "cpsched.dispatchers.cp.papers.mod17",
    "cpsched.dispatchers.cp.recipes.pcp20": "cpsched.dispatchers.cp.papers.pcp20",
    "cpsched.dispatchers.cp.sat": "cpsched.dispatchers.cp.cp_sat",
    "cpsched.dispatchers.cp.search": "cpsched.dispatchers.cp.decision_builder",
    "cpsched.dispatchers.cp.sizes": "cpsched.dispatchers.cp.model_sizes",
    "cpsched.dispatchers.cp.variables": "cpsched.dispatchers.cp.position_variables",
    "cpsched.dispatchers.cp.window": "cpsched.dispatchers.cp.cp_problem",
    "cpsched.dispatchers.list_orders": "cpsched.dispatchers.list_dispatchers",
    "cpsched.dispatchers.lists": "cpsched.dispatchers.list_dispatchers",
    "cpsched.dispatchers.lookahead.dispatcher": "cpsched.dispatchers.lookahead.lookahead_dispatcher",
    "cpsched.dispatchers.lookahead.virtual": "cpsched.dispatchers.lookahead.run_times_and_easy_waits",
    "cpsched.dispatchers.priority": "cpsched.dispatchers.priority_rule",
    "cpsched.dispatchers.slurm.advised": "cpsched.dispatchers.slurm.boosted_slurm",
    "cpsched.dispatchers.slurm.agenda": "cpsched.dispatchers.slurm.pass_schedule",
    "cpsched.dispatchers.slurm.dispatcher": "cpsched.dispatchers.slurm.slurm_dispatcher",
    "cpsched.dispatchers.slurm.parameters": "cpsched.dispatchers.slurm.scheduler_parameters",
    "cpsched_sim.offline": "cpsched_sim.offline_dispatcher",
    "cpsched_sim.oracle": "cpsched_sim.clairvoyant_predictors",
    "cpsched_sim.testing.promises": "cpsched_sim.testing.dispatcher_properties",
    "cpsched_sim.testing.tries": "cpsched_sim.testing.hypothesis_example_counts",
    "cpsched_sim.testing.worlds": "cpsched_sim.testing.hypothesis_strategies",
}
"""Current module by former module."""

CLASSES: Mapping[str, str] = {
    "cpsched.dispatchers.by_scheme:SchemeDispatcher": "ListSchedulerDispatcher",
    "cpsched.dispatchers.cp.per_objective:PerObjectiveDispatcher": "CpSatDispatcher",
    "cpsched.dispatchers.lookahead.dispatcher:Lookahead": "LookaheadDispatcher",
    "cpsched.dispatchers.lookahead.lookahead_dispatcher:Lookahead": "LookaheadDispatcher",
    "cpsched.dispatchers.priority:PriorityDispatcher": "WaitRatioDispatcher",
    "cpsched.dispatchers.priority_rule:PriorityDispatcher": "WaitRatioDispatcher",
    "cpsched.dispatchers.slurm.advised:Advised": "PlanAdvisedSlurmDispatcher",
    "cpsched.dispatchers.slurm.boosted_slurm:BoostedSlurmDispatcher": "PlanAdvisedSlurmDispatcher",
    "cpsched.dispatchers.slurm.dispatcher:SlurmDispatcher": "SlurmTwinDispatcher",
    "cpsched.dispatchers.slurm.slurm_dispatcher:SlurmDispatcher": "SlurmTwinDispatcher",
    "cpsched.errors:PluginFault": "PluginError",
    "cpsched.errors:Unloadable": "PluginLoadError",
    "cpsched.listing:Listing": "Registration",
    "cpsched.metrics:Measures": "ScheduleData",
    "cpsched.model.snapshot:Scene": "ClusterState",
    "cpsched_sim.recorded_schedule:recorded": "recorded_schedule_of",
    "cpsched_sim.report.pictures:Picture": "Chart",
    "cpsched_sim.report.pictures:draw_shares": "draw_account_shares",
    "cpsched_sim.report.pictures:draw_use": "draw_utilization",
    "cpsched_sim.study.study_results:Results": "StudyResults",
    "cpsched_sim.traces.dialect:Dialect": "TraceDialect",
}
"""Current name of a class, without its module, by former `package.module:Class`."""


def resolve_former_path(dotted_path: str) -> str:
    """Return the current name of `package.module:attribute` or `package.module`."""
    module, colon, path = dotted_path.partition(":")
    name, dot, rest = path.partition(".")
    present = CLASSES.get(f"{module}:{name}", name)
    return f"{MODULES.get(module, module)}{colon}{present}{dot}{rest}"


def resolve_former_name(package: str, name: str) -> str | None:
    """Return an exported class's current name, or None if `name` is not a former one."""
    return next(
        (new for old, new in CLASSES.items() if old.split(".")[0] == package and old.endswith(f":{name}")), None
    )
