"""Define the command line, with the simulator's and the bridge's commands.

Slow imports run inside the commands, so that `--version` and `--help` stay fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cpsched_bridge.errors import SettingsError
from cpsched_bridge.program import command_help
from cpsched_sim import command_conventions
from cpsched_sim.cli import app as simulator
from cpsched_sim.cli.options import Dispatcher, Predictor, complete_dispatcher, expand_option_groups
from cpsched_sim.command_conventions import SHORT_HELP, ErrorReportingCommandGroup, print_message, print_report

if TYPE_CHECKING:
    from cpsched_bridge.settings import Settings

app = typer.Typer(
    cls=ErrorReportingCommandGroup,
    context_settings=SHORT_HELP,
    help="Schedule an HPC cluster alongside Slurm or PBS, or simulate one.",
    epilog=command_help.ROOT_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.registered_commands += simulator.registered_commands
app.registered_groups += simulator.registered_groups
journal_app = typer.Typer(help="Show what the bridge did in each round.", no_args_is_help=True)
app.add_typer(journal_app, name="journal")

Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", envvar="CPSCHED_CONFIG", help="The bridge's settings file, in YAML.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout, with the keys listed above.")]
Url = Annotated[
    str, typer.Option(envvar="CPSCHED_URL", help="Address of the status page; default: from the settings file.")
]
DEFAULT_CONFIG = Path("/etc/cpsched/bridge.yaml")


def _load_settings(config: Path) -> Settings:
    """Read and return a settings file."""
    from cpsched_bridge.settings import load_settings

    if config == DEFAULT_CONFIG and not config.exists():
        raise SettingsError(f"{config}: No such file or directory; set the path with --config or CPSCHED_CONFIG")
    return load_settings(config)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeQueryOptions:
    """Options for commands that print an answer of the running bridge."""

    url: Url = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print the bridge's answer as JSON.")] = False
    config: Config = DEFAULT_CONFIG

    def query_rows(self, name: str, table: str, query: Mapping[str, str | int]) -> list[dict[str, Any]]:
        """Query the status page, and return the rows of a table in its answer."""
        from cpsched_bridge.program import bridge_client

        answer = bridge_client.query_bridge(self.url, partial(_load_settings, self.config), name, query)
        return bridge_client.list_rows(answer, table)


reporting = command_conventions.with_error_reporting()
"""Decorator that prints an error on one line and exits with code 2 for invalid input or 1 for a failure."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cpsched {version('cpsched')}")
        raise typer.Exit


@app.callback()
def define_global_options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options for every command."""


@app.command()
@reporting
def bridge(config: Config = DEFAULT_CONFIG) -> None:
    """Run the bridge alongside a cluster until stopped.

    Shadow mode, the default, writes nothing to the cluster.
    """
    from cpsched_bridge.program import bootstrap
    from cpsched_bridge.telemetry import bridge_log

    settings = _load_settings(config)
    bridge_log.configure_logging(settings.log_format)
    problems = bootstrap.run_bridge(settings, str(config))
    for problem in problems:
        print_message("error", problem)
    if problems:
        raise typer.Exit(1)


@app.command()
@reporting
def demo(
    dispatcher: Annotated[
        str,
        typer.Option(
            "--dispatcher",
            "-d",
            help="Name of a dispatcher; see `cpsched dispatchers`.",
            autocompletion=complete_dispatcher,
        ),
    ] = "lookahead",
    jobs: Annotated[int, typer.Option(min=1, help="Number of jobs.")] = 2000,
    seconds: Annotated[float, typer.Option(min=0, help="Length of the live view in seconds.")] = 30.0,
    limit: Annotated[float, typer.Option(help="Time limit for a decision, for dispatchers that search.")] = 0.02,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the workload.")] = 1,
) -> None:
    """Show control mode live on a simulated Eurora, next to Slurm's scheduler.

    A twin of Slurm's scheduler gets the same jobs.
    """
    from cpsched_bridge.program.demo import run_demo
    from cpsched_sim.cli import add_current_directory

    add_current_directory()
    raise typer.Exit(run_demo(dispatcher, jobs, seconds, limit, seed))


@journal_app.command("list")
@reporting
def journal_list(
    config: Config = DEFAULT_CONFIG,
    last: Annotated[int, typer.Option(min=1, help="Number of most recent rounds to show.")] = 20,
    starts: Annotated[bool, typer.Option("--starts", help="Show only rounds that started a job.")] = False,
    as_json: AsJson = False,
) -> None:
    """List recorded rounds.

    --json prints a list of objects: number, now_s, at_unix_s, mode, queued, running, starts, path.
    """
    from cpsched_bridge.program import terminal_views
    from cpsched_bridge.store import state_paths

    with state_paths.open_journal(_load_settings(config)) as journal:
        rounds = journal.list_rounds(last, starts)
    print_report(rounds, terminal_views.print_rounds, as_json)


@journal_app.command("show")
@reporting
def journal_show(
    round: Annotated[int, typer.Argument(help="Round number.")],
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show a round: its queue, decision, commands, and their results.

    --json prints an object: round, at_unix_s, now_s, mode, policy, failure, statistics, seconds, note, and lists of
    jobs: waiting, running, sent.
    """
    from cpsched_bridge.program import bridge_reports, terminal_views
    from cpsched_bridge.store import state_paths

    with state_paths.open_journal(_load_settings(config)) as journal:
        record = journal.read_round(round)
    report = bridge_reports.report_round(record)
    print_report(report, terminal_views.print_round, as_json, bridge_reports.RoundReport.to_json)


@journal_app.command("replay")
@reporting
def journal_replay(
    round: Annotated[int | None, typer.Argument(help="Round number; default: the last round.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay every recorded round.")] = False,
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Repeat a recorded decision and report whether the result is the same.

    --json prints a list of objects: round, same, differences, skipped (why a round was not replayed, or null).
    """
    from cpsched_bridge.program import bridge_reports, terminal_views
    from cpsched_bridge.store import state_paths

    with state_paths.open_journal(_load_settings(config)) as journal:
        numbers = [journal.last_round if round is None else round]
        if everything:
            numbers = list(journal.iterate_round_numbers())
        replays = bridge_reports.replay_recorded_rounds(journal, numbers)
    print_report(replays, terminal_views.print_replays, as_json, bridge_reports.replays_to_json)
    if any(replay.differences for replay in replays):
        raise typer.Exit(1)


@app.command()
@reporting
def why(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="Job id as shown to users, such as 123_4.")],
    url: Url = "",
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Explain when a job starts, and why it waits.

    Queries the running bridge. Without an answer, or for an ended job, the bridge's files give the explanation. `--url`
    needs no settings file, and with it, --json prints the bridge's answer.

    --json prints an object: job, bridge (the running bridge's answer), job_id, round, now_s, recorded (the job in that
    round, with the keys of the API), past, boost, ledger, events, unreadable. Values that do not apply are null.
    """
    from cpsched_bridge.program import bridge_client, bridge_reports, terminal_views
    from cpsched_bridge.store import state_paths

    if url:
        answer = bridge_client.query_bridge_at_address(url, f"jobs/{job}", {})
        print_report(answer, bridge_client.print_job, as_json)
        return
    settings = _load_settings(config)
    state_paths.require_used_state_dir(settings)
    with state_paths.preserve_ownership(settings):
        report = bridge_reports.report_job(job, settings)
        report.bridge = bridge_client.find_job(settings, job)
        print_why = partial(terminal_views.print_why, settings=settings)
        print_report(report, print_why, as_json, bridge_reports.JobReport.to_json)


@app.command()
@reporting
@expand_option_groups
def queue(
    *,
    start: Annotated[
        bool, typer.Option("--start", help="Show only pending jobs, with the 50 % and 80 % intervals of their starts.")
    ] = False,
    user: Annotated[str, typer.Option(help="Show this user's jobs; default: your own.")] = "",
    everyone: Annotated[bool, typer.Option("--all", help="Show all users' jobs that you may see.")] = False,
    bridge: BridgeQueryOptions,
) -> None:
    """List pending and running jobs, with the 80 % intervals of the starts of pending jobs.

    Queries the running bridge. `--url` needs no settings file, so users can run this command on any host that can reach
    the status page.
    """
    from cpsched_bridge.program import bridge_client

    name = "" if everyone else user or bridge_client.get_process_user_name()
    found = bridge.query_rows("jobs", "jobs", {"user": name} if name else {})
    if start:
        found = [row for row in found if row["state"] != "running"]
    print_queue = partial(bridge_client.print_queue, with_intervals=start, user=name)
    print_report(found, print_queue, bridge.as_json)


@app.command("estimate-start")
@reporting
@expand_option_groups
def estimate_start(
    *,
    time: Annotated[
        str, typer.Option(metavar="LIMIT", help="Time limit in sbatch format: minutes, HH:MM:SS, or D-HH.")
    ],
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes; on a pool, number of one-core units.")] = 1,
    cores: Annotated[int, typer.Option(min=1, help="Cores per node.")] = 1,
    mem: Annotated[
        str, typer.Option("--mem", "--memory-mib", metavar="SIZE", help="Memory per node in MiB, or such as 4G.")
    ] = "0",
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per node.")] = 0,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Request exclusive nodes.")] = False,
    partition: Annotated[str, typer.Option(help="Use only the nodes in this partition.")] = "",
    bridge: BridgeQueryOptions,
) -> None:
    """Estimate when a job submitted now, or a smaller one, would start.

    Queries the running bridge.
    """
    from cpsched.slurm_text.limits import parse_tres
    from cpsched_bridge.program import bridge_client

    query: dict[str, str | int] = {"nodes": nodes, "time": time, "cores": cores, "exclusive": int(exclusive)}
    memory_mib = parse_tres(f"mem={mem}")["mem"]
    query |= {name: amount for name, amount in (("memory_mib", memory_mib), ("gpus", gpus)) if amount}
    query |= {"partition": partition} if partition else {}
    print_report(bridge.query_rows("when", "starts", query), bridge_client.print_start_estimate, bridge.as_json)


@app.command("record-slurm-estimates")
@reporting
def record_slurm_estimates(
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV file to append to, compressed if named *.gz.")],
    every: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Time between calls to squeue.")] = 60.0,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="HH:MM:SS or D-HH; default: no limit.")] = "",
) -> None:
    """Record when Slurm expects each pending job to start (`squeue --start`).

    Needs no privileges. Appends to FILE if it exists. `cpsched accuracy start-times --slurm-estimates FILE` compares
    the estimates with forecasts.
    """
    from cpsched.slurm_text.limits import parse_slurm_time_s
    from cpsched_bridge.program.slurm_estimate_recording import record_slurm_start_estimates

    record_slurm_start_estimates(out, every, parse_slurm_time_s(duration))


@app.command("backfill-windows")
@reporting
@expand_option_groups
def backfill_windows(
    *,
    partition: Annotated[str, typer.Option(help="Use only the nodes in this partition.")] = "",
    bridge: BridgeQueryOptions,
) -> None:
    """Show job sizes that could start now without delaying another job.

    Queries the running bridge.
    """
    from cpsched_bridge.program import bridge_client

    found = bridge.query_rows("windows", "windows", {"partition": partition} if partition else {})
    print_report(found, bridge_client.print_backfill_windows, bridge.as_json)


@app.command()
@reporting
def status(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show the bridge's mode, last cycle, jobs by state, and latest events.

    --json prints an object: configured_mode, stopped, paused, paused_ago_s, remembered (subject, fact,
    since_unix_s), leadership (leader, is_here, since_unix_s, other, heard_unix_s, takeover_s), startup,
    last_good_cycle_ago_s, heartbeat_error, mode, transport, last_round, last_round_ago_s, journal, ledger (jobs by
    state), held, backoff (jobs, users), unmanaged, preemption (if the bridge chooses victims), events, unreadable.
    Unknown values are null.
    """
    from cpsched_bridge.program import bridge_reports, terminal_views
    from cpsched_bridge.store import state_paths

    settings = _load_settings(config)
    state_paths.require_used_state_dir(settings)
    with state_paths.preserve_ownership(settings):
        found = bridge_reports.report_status(settings)
        print_report(found, terminal_views.print_status, as_json)
    if found.unreadable:
        raise typer.Exit(1)


@app.command()
@reporting
def events(
    last: Annotated[int, typer.Option(min=1, help="Number of most recent events to show.")] = 50,
    job: Annotated[str, typer.Option(metavar="JOBID", help="Show only this job's events.")] = "",
    kind: Annotated[str, typer.Option(help="Show only events of this kind, such as start_failed.")] = "",
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Show notable events, such as failed cycles, failed starts and mode changes.

    --json prints a list of objects: at_unix_s, round, kind, job_id, detail, label.
    """
    from cpsched_bridge.program import bridge_reports, terminal_views

    found = bridge_reports.report_events(_load_settings(config), last, job, kind)
    print_report(found, terminal_views.print_events, as_json)


@app.command("unmanaged")
@reporting
def unmanaged(config: Config = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """List pending jobs that only the cluster's own scheduler manages, with reasons.

    --json prints a list of objects: job_id, kind, reason, label, user.
    """
    from cpsched_bridge.program import terminal_views
    from cpsched_bridge.store import state_paths
    from cpsched_bridge.telemetry.reason_kinds import UNMANAGED

    with state_paths.open_journal(_load_settings(config)) as journal:
        jobs = journal.list_unscheduled_jobs(UNMANAGED)
    print_report(jobs, terminal_views.print_unmanaged, as_json)


@app.command()
@reporting
def pause(
    reason: Annotated[str, typer.Option(help="Reason, shown by `cpsched status`.")] = "paused by an operator",
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Release all jobs and start none until `cpsched resume`.

    The bridge still makes and records decisions.
    """
    from cpsched_bridge.store import state_paths
    from cpsched_bridge.store.lock_and_request_files import PauseFile

    settings = _load_settings(config)
    with state_paths.report_request_write_errors(settings, "; `systemctl stop cpsched-bridge` also releases its jobs"):
        PauseFile(settings.state_dir).pause(reason)
    typer.echo("paused: the bridge releases its jobs in its next cycle and starts none")


@app.command()
@reporting
def resume(config: Config = DEFAULT_CONFIG) -> None:
    """Resume a bridge that was paused or paused itself."""
    from cpsched_bridge.store import state_paths
    from cpsched_bridge.store.lock_and_request_files import PauseFile

    settings = _load_settings(config)
    with state_paths.report_request_write_errors(settings):
        was_paused = PauseFile(settings.state_dir).resume()
    typer.echo("the bridge resumes in its next cycle" if was_paused else "the bridge was not paused")


@app.command()
@reporting
def forget(
    kind: Annotated[
        Literal["job", "user"], typer.Argument(metavar="job|user", help="What to forget: a job or a user.")
    ],
    name: Annotated[str, typer.Argument(help="Job id as shown to users, such as 123_4, or user name.")],
    config: Config = DEFAULT_CONFIG,
) -> None:
    """End what the bridge remembers against a job or user.

    The bridge ends their backoffs, and manages their jobs again that it left to the cluster after failed starts.
    `cpsched status` shows what it remembers. It remembers nothing against nodes.
    """
    from cpsched_bridge.store import state_paths
    from cpsched_bridge.store.lock_and_request_files import ForgetFile, ForgetRequest

    settings = _load_settings(config)
    with state_paths.report_request_write_errors(settings):
        ForgetFile(settings.state_dir).request(ForgetRequest(kind, name))
    typer.echo(f"the bridge forgets earlier failures of {kind} {name} in its next cycle")


@app.command("take-leadership")
@reporting
def take_leadership(config: Config = DEFAULT_CONFIG) -> None:
    """Take control from another running bridge.

    No command is needed to replace a stopped or crashed bridge.
    """
    from cpsched_bridge.store import state_paths
    from cpsched_bridge.store.lock_and_request_files import TakeLeadershipFile

    settings = _load_settings(config)
    with state_paths.report_request_write_errors(settings):
        TakeLeadershipFile(settings.state_dir).request()
    typer.echo("this bridge takes control in its next cycle; any other bridge yields")


@app.command("release-all")
@reporting
def release_all(
    config: Config = DEFAULT_CONFIG,
    if_stale: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Act only if the heartbeat is older than SECONDS, even if a bridge is running."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Act even if a bridge is running.")] = False,
) -> None:
    """Release every held job to the cluster's own scheduler.

    Needs only the ledger and the cluster, not a running bridge.
    """
    from cpsched_bridge.program import release_all as release

    typer.echo(release.release_all(_load_settings(config), str(config), if_stale, force))


@app.command("config")
@reporting
def effective_config(
    config: Config = DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every effective setting with its value and source.

    Does not query the cluster. If the objective has targets, also show them, the current weight and the ratios to EASY
    that led to it.
    Rejects the same settings as `cpsched bridge`.

    --json prints an object: policy, fallback, settings (name, value, source), easy_targets, easy_ratios, unreadable.
    """
    from cpsched_bridge.program import bootstrap, bridge_reports, terminal_views

    settings = _load_settings(config)
    effective = bootstrap.build_bridge_policies(settings, str(config)).config
    report = bridge_reports.report_config(effective, settings)
    print_report(report, terminal_views.print_effective_config, as_json)


@app.command()
@reporting
def doctor(
    config: Config = DEFAULT_CONFIG,
    as_json: AsJson = False,
    accounting: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", min=0.01, help="Also show what share of the last DAYS days' jobs would be unmanaged."
        ),
    ] = None,
) -> None:
    """Check the requirements of control mode, and show how to fix failures.

    Rejects the same settings as `cpsched bridge`.
    --json prints a list of objects: name, ok, detail, fix, required, may_pass_later, mode.
    """
    from cpsched_bridge.cycle.mode_and_readiness import select_checks_for_mode
    from cpsched_bridge.program import bootstrap, state_checks, terminal_views

    settings = _load_settings(config)
    ready = bootstrap.build_bridge_policies(settings, str(config))
    backend = bootstrap.connect_backend(settings, str(config), ready.chosen)
    try:
        checks = [
            *select_checks_for_mode(bootstrap.wait_for_checks(backend, partial(print_message, "note")), settings.mode),
            ready.config.check(),
            *bootstrap.check_other_leader(backend, settings, str(config)),
            *state_checks.check_victim_choice_not_paused(settings),
            *state_checks.check_memory(settings),
            *([] if accounting is None else bootstrap.check_accounting(backend, accounting)),
        ]
        print_report(checks, terminal_views.print_checks, as_json)
        if any(check.required and not check.ok for check in checks):
            raise typer.Exit(1)
    finally:
        backend.close()


@app.command()
@reporting
def gantt(
    file: Annotated[
        Path, typer.Argument(help="A schedule.csv.gz from `cpsched simulate --out`, or a trace to replay.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file, .svg or .html.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Start, relative to the first submission, such as 90m, 2h or 1d."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End, relative to the first submission.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The trace's system, by name or file.")] = None,
    dispatcher: Dispatcher = "easy",
    predictor: Predictor = "walltime",
    max_jobs: Annotated[
        int | None, typer.Option(min=1, help="Replay at most this many jobs, starting with the first.")
    ] = None,
) -> None:
    """Draw a schedule over nodes and time.

    The height of a job is its share of a node's processors. With more than 64 nodes or 4,000 bars, rows show the share
    of processors in use instead; --from and --to select a shorter part.
    """
    from cpsched_bridge.program import gantt_command as drawing
    from cpsched_sim.cli import add_current_directory

    add_current_directory()
    drawing.check_output_path(out)
    typer.echo(
        drawing.write_gantt_chart(drawing.load_schedule(file, system, dispatcher, predictor, max_jobs), out, from_, to)
    )


@app.command("deploy-files")
@reporting
def deploy_files(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files whose content differs.")] = False,
    runbooks: Annotated[
        str, typer.Option(metavar="URL", help="URL of the folder that contains OPERATE.md; alerts link to it.")
    ] = "",
) -> None:
    """Write the files to install, such as settings, systemd units and alerts."""
    from cpsched_bridge.program.deploy_files import write_deployment_files

    for line in write_deployment_files(folder, force, runbooks):
        typer.echo(line)


command_help.add_command_help(app)


def main() -> None:
    """Run the `cpsched` program."""
    app(prog_name="cpsched")


if __name__ == "__main__":
    main()
