"""The commands about one host: migrate_compute_inventory, rename, delete-host, adopt."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.cmd.manage.options import (
    BadArgument,
    ManageParser,
    add_common,
    configuration,
    report_client,
    transport,
    uuid_of,
)
from compute_agent.drift.wording import count_of
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table

if TYPE_CHECKING:
    from compute_agent.agent.assembly import AgentParts
    from compute_agent.manage.migrate import NodeResult


class MigrateExit(ExitStatus):
    """Exit status of `migrate_compute_inventory`."""

    FINE = 0, "done, or nothing to do"
    CONFIGURATION = 1, "configuration error"
    AGENT_RUNNING = 2, "the agent is running"
    NOT_MIGRATED = 3, "a node was not migrated; the others were"
    PLACEMENT = 4, "placement or its database cannot be used"
    DRIVER_NOT_READY = 5, "the driver is not ready"
    WOULD_CHANGE = 6, "--dry-run, and something would be done"


MIGRATE_STATUS = exit_table(statuses=[*MigrateExit, Exit.BAD_ARGUMENTS])


def add_commands(commands: argparse._SubParsersAction[ManageParser]) -> None:
    """Add the commands of this module to the parser."""
    migrate = commands.add_parser(
        "migrate_compute_inventory",
        help="reshape the tree of this host while no service runs",
        description="Change the tree of this host in placement, with its allocations, to the\n"
        "configured layout. Run it after an upgrade, before the agent starts. A second run\n"
        "completes a run that was interrupted; otherwise it changes nothing.",
        epilog=MIGRATE_STATUS,
    )
    add_common(migrate, _migrate, migrate_exit_of)
    migrate.add_argument(
        "--node", action="append", default=[], metavar="NODE", help="only this node (repeatable)"
    )
    migrate.add_argument(
        "--plan", metavar="FILE", type=Path, help="write the changes to FILE, as JSON"
    )
    rename = commands.add_parser(
        "rename",
        help="rename the tree of a host",
        description="Rename the root provider of a host, and all providers named after it.",
    )
    add_common(rename, _rename)
    rename.add_argument("old", metavar="HOST", help="current name of the root provider of the host")
    rename.add_argument("new", metavar="NAME", help="new name")
    delete = commands.add_parser(
        "delete-host",
        help="delete the tree of a host from placement",
        description="Delete all resource providers of a host. The host must have no allocations,\n"
        "and its agent must not run, because it would create the host again.",
    )
    add_common(delete, _delete_host)
    delete.add_argument("name", metavar="HOST", help="name or uuid of the host's root provider")
    delete.add_argument(
        "--evacuated",
        action="store_true",
        help="release what consumers still hold here that now run elsewhere",
    )
    delete.add_argument(
        "--force",
        action="store_true",
        help="do not check whether the agent of the host runs, which would create it again",
    )
    adopt = commands.add_parser(
        "adopt",
        help="use an existing provider as the root provider of this host",
        description="Write the file compute_id, so that the agent of this host reports that tree.",
    )
    add_common(adopt, _adopt)
    adopt.add_argument(
        "uuid", metavar="UUID", type=uuid_of, help="uuid of the root resource provider"
    )


def migrate_exit_of(error: errors.ComputeAgentError) -> MigrateExit:
    """Return the exit status of an error of `migrate_compute_inventory`."""
    from compute_agent.state.files import AgentRunning

    if isinstance(error, AgentRunning):
        return MigrateExit.AGENT_RUNNING
    if isinstance(error, errors.VirtDriverNotReady | errors.HypervisorUnavailable):
        return MigrateExit.DRIVER_NOT_READY
    if isinstance(error, errors.PlacementError):
        return MigrateExit.PLACEMENT
    return MigrateExit.CONFIGURATION


def _migrate(namespace: argparse.Namespace) -> int:
    from compute_agent.agent import assembly
    from compute_agent.manage.migrate import migrate
    from compute_agent.state.files import AgentLock

    conf = configuration(namespace)
    if namespace.plan is not None:
        _check_writable(namespace.plan)
    state_path = Path(conf.state_path)
    if namespace.dry_run and state_path.is_dir():
        # read-only parts take no lock, but a running agent is refused anyway
        with AgentLock(state_path):
            pass
    parts = assembly.build(conf, read_only=namespace.dry_run, transport=transport(namespace, conf))
    results: list[NodeResult] = []
    try:
        parts.report.connect()
        for result in migrate(parts, _chosen_nodes(parts, namespace), dry_run=namespace.dry_run):
            results.append(result)  # noqa: PERF402 - those before a failure are printed too
    except BaseException:
        if results:
            _print_results(results, namespace)
        raise
    finally:
        parts.close()
    _print_results(results, namespace)
    if any(result.failure for result in results):
        return MigrateExit.NOT_MIGRATED
    if namespace.dry_run and any(result.operations for result in results):
        return Exit.WOULD_CHANGE
    return Exit.FINE


def _chosen_nodes(parts: AgentParts, namespace: argparse.Namespace) -> dict[str, str]:
    nodes = parts.setup.nodes()
    unknown_nodes = sorted(set(namespace.node) - set(nodes))
    if unknown_nodes:
        raise BadArgument(
            f"--node: the driver does not manage node {', '.join(unknown_nodes)}; it manages "
            f"{', '.join(sorted(nodes)) or 'none'}. Nothing was changed."
        )
    return {name: nodes[name] for name in nodes if not namespace.node or name in namespace.node}


def _print_results(results: list[NodeResult], namespace: argparse.Namespace) -> None:
    document = {"dry_run": namespace.dry_run, "nodes": [asdict(result) for result in results]}
    if namespace.json:
        print(json.dumps(document, indent=2))
    for result in results:
        _print_result(result, namespace)
    if namespace.plan is not None:
        namespace.plan.write_text(json.dumps(document, indent=2) + "\n")


def _check_writable(path: Path) -> None:
    """Check, before anything is changed, that the report can be written afterwards."""
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise BadArgument(f"--plan {path} cannot be written: {error.strerror}.") from error


def _print_result(result: NodeResult, namespace: argparse.Namespace) -> None:
    if result.failure is not None:
        print(f"{result.node}: not migrated: {result.failure}", file=sys.stderr)
        return
    if namespace.json:
        return
    if not result.operations:
        print(f"{result.node}: nothing to do")
        return
    done_text = "would be done" if namespace.dry_run else f"done in {result.seconds:.1f} s"
    what = f"{count_of(len(result.operations), 'step')} {done_text}"
    if result.reshaped:
        what += f", a reshape with {count_of(result.consumers, 'consumer')} rewritten"
    print(f"{result.node}: {what}")
    for step in result.operations:
        print(f"  {step}")


def _rename(namespace: argparse.Namespace) -> int:
    from compute_agent.manage.rename import rename

    conf = configuration(namespace)
    renamings = rename(
        report_client(namespace, conf), namespace.old, namespace.new, dry_run=namespace.dry_run
    )
    if namespace.json:
        document = {
            "dry_run": namespace.dry_run,
            "renamed": [asdict(renaming) for renaming in renamings],
        }
        print(json.dumps(document, indent=2))
    else:
        verb = "would be" if namespace.dry_run else "is"
        for renaming in renamings:
            print(f"{renaming.uuid}: {renaming.old} {verb} {renaming.new}")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE


def _delete_host(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.manage.sources import running_agent
    from compute_agent.manage.hosts import delete_host

    conf = configuration(namespace)
    host = delete_host(
        report_client(namespace, conf),
        namespace.name,
        is_evacuated=namespace.evacuated,
        dry_run=namespace.dry_run,
        running_agent=(lambda _root: None) if namespace.force else partial(running_agent, conf),
    )
    if namespace.json:
        print(json.dumps({"dry_run": namespace.dry_run, "host": asdict(host)}, indent=2))
    else:
        verb = "would be deleted" if namespace.dry_run else "deleted"
        providers = count_of(len(host.providers), "resource provider")
        print(f"{host.name} ({host.uuid}): {providers} {verb}")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE


def _adopt(namespace: argparse.Namespace) -> int:
    from compute_agent.manage import hosts
    from compute_agent.state import identity

    conf = configuration(namespace)
    state_path = Path(conf.state_path)
    name = hosts.adopt(
        report_client(namespace, conf),
        state_path,
        namespace.uuid,
        places=identity.directories(conf.config_file or (), state_path),
        dry_run=namespace.dry_run,
    )
    verb = "would be" if namespace.dry_run else "is"
    if namespace.json:
        print(json.dumps({"dry_run": namespace.dry_run, "uuid": namespace.uuid, "name": name}))
    else:
        print(f"this host {verb} {namespace.uuid} ({name}) from now on")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.FINE
