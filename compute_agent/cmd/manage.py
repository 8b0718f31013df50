"""The command `compute-manage`: what operators do by hand.

    placement migrate_compute_inventory   the reshape of this host while no service runs
    placement delete-host NAME            take a host's tree out of placement
    placement adopt UUID                  give this host the identity of a provider that exists

Exit status of `migrate_compute_inventory`: 0 done or nothing to do · 1 configuration · 2 the agent
is running · 3 a node was not migrated, the others were · 4 placement or its database cannot be used
· 5 the driver is not ready · 6 `--dry-run`, and something would be done.

Exit status of the others: 0 done · 1 configuration · 3 refused, nothing was changed · 4 placement
cannot be used · 6 `--dry-run`, and something would be done. Always: 127 bad arguments, 255
unexpected.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from compute_agent import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.manage.migrate import NodeResult
    from compute_agent.report.client import ReportClient
    from compute_agent.report.transport import Transport


class Exit(IntEnum):
    """Exit status, see the module."""

    DONE = 0
    CONFIGURATION = 1
    AGENT_RUNNING = 2
    REFUSED = 3
    PLACEMENT = 4
    DRIVER_NOT_READY = 5
    WOULD_CHANGE = 6
    BAD_ARGUMENTS = 127
    UNEXPECTED = 255


class _Parser(argparse.ArgumentParser):
    """argparse ends with 2 on bad arguments, which means "the agent is running" here."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(Exit.BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command given by `argv` and return its exit status."""
    namespace = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return int(namespace.function(namespace))
    except KeyboardInterrupt:
        print("compute-manage: interrupted", file=sys.stderr)
        return 130
    except errors.ComputeAgentError as error:
        print(f"compute-manage {namespace.command}: {error}", file=sys.stderr)
        return exit_of(error)
    except Exception:  # noqa: BLE001 - the last line of defence of a command
        traceback.print_exc()
        return Exit.UNEXPECTED


def exit_of(error: errors.ComputeAgentError) -> Exit:
    """The exit status that a failure ends with."""
    from compute_agent.state_files import AgentRunning

    if isinstance(error, AgentRunning):
        return Exit.AGENT_RUNNING
    if isinstance(error, errors.VirtDriverNotReady):
        return Exit.DRIVER_NOT_READY
    if isinstance(error, errors.ResourceProviderInUse | errors.ComputeHostNotFound):
        return Exit.REFUSED
    if isinstance(error, errors.PlacementError):
        return Exit.PLACEMENT
    return Exit.CONFIGURATION


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="compute-manage",
        description="Operators' tools for hosts in placement (nova-manage placement ... in Nova).",
    )
    topics = parser.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    placement = topics.add_parser("placement", help="hosts and their resource providers")
    commands = placement.add_subparsers(dest="command", required=True, metavar="COMMAND")

    migrate = commands.add_parser(
        "migrate_compute_inventory", help="the reshape of this host while no service runs"
    )
    _common(migrate, _migrate)
    migrate.add_argument("--node", action="append", default=[], help="this node only (repeatable)")
    migrate.add_argument(
        "--plan", metavar="FILE", type=Path, help="write what is done, or would be, as JSON"
    )
    delete = commands.add_parser("delete-host", help="take a host's tree out of placement")
    _common(delete, _delete_host)
    delete.add_argument("name", help="name of the host, as its root provider is named")
    delete.add_argument(
        "--evacuated",
        action="store_true",
        help="take from consumers that run elsewhere by now what they still hold here",
    )
    adopt = commands.add_parser("adopt", help="give this host the identity of a known provider")
    _common(adopt, _adopt)
    adopt.add_argument("uuid", help="uuid of the root resource provider")
    return parser


def _common(parser: argparse.ArgumentParser, function: object) -> None:
    parser.set_defaults(function=function)
    parser.add_argument(
        "--config-file", action="append", default=[], metavar="FILE", help="the agent's options"
    )
    parser.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="directory of *.conf files"
    )
    parser.add_argument(
        "--placement-config",
        metavar="FILE",
        help="placement.conf: work on its database in this process, with no server running",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--verbose", action="store_true", help="log everything on stderr")


def _configuration(namespace: argparse.Namespace) -> cfg.ConfigOpts:
    from compute_agent import conf as agent_conf
    from compute_agent.cmd import agent_logging

    argv = [f"--config-file={file}" for file in namespace.config_file]
    argv += [f"--config-dir={directory}" for directory in namespace.config_dir]
    argv += ["--debug"] if namespace.verbose else []
    conf = agent_conf.new_config(argv)
    agent_logging.set_up(conf, quiet=not namespace.verbose)
    return conf


def _transport(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> Transport:
    if namespace.placement_config is None:
        from compute_agent.report.keystone import KeystoneTransport

        return KeystoneTransport.from_conf(conf)
    if not Path(namespace.placement_config).is_file():
        raise errors.InvalidConfiguration(
            f"--placement-config {namespace.placement_config}: there is no such file."
        )
    from compute_agent.report.transport import InProcessTransport

    return InProcessTransport.from_config_files([namespace.placement_config])


def _report(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> ReportClient:
    from compute_agent.report.client import ReportClient

    return ReportClient(_transport(namespace, conf))


def _migrate(namespace: argparse.Namespace) -> int:
    from compute_agent import agent_parts
    from compute_agent.manage.migrate import migrate
    from compute_agent.state_files import AgentLock

    conf = _configuration(namespace)
    state_path = Path(conf.state_path)
    if namespace.dry_run and state_path.is_dir():
        # parts that only look take no lock, but a running agent is refused all the same
        with AgentLock(state_path):
            pass
    parts = agent_parts.build(
        conf, read_only=namespace.dry_run, transport=_transport(namespace, conf)
    )
    try:
        parts.report.connect()
        results = migrate(parts, namespace.node, dry_run=namespace.dry_run)
    finally:
        parts.close()
    document = {"dry_run": namespace.dry_run, "nodes": [asdict(result) for result in results]}
    if namespace.plan is not None:
        namespace.plan.write_text(json.dumps(document, indent=2) + "\n")
    if namespace.json:
        print(json.dumps(document, indent=2))
    else:
        for result in results:
            _print_result(result, dry_run=namespace.dry_run)
    if any(result.failure for result in results):
        return Exit.REFUSED
    if namespace.dry_run and any(result.operations for result in results):
        return Exit.WOULD_CHANGE
    return Exit.DONE


def _print_result(result: NodeResult, *, dry_run: bool) -> None:
    if result.failure is not None:
        print(f"{result.node}: not migrated: {result.failure}", file=sys.stderr)
        return
    if not result.operations:
        print(f"{result.node}: nothing to do")
        return
    done = "would be done" if dry_run else f"done in {result.seconds:.1f} s"
    what = f"{len(result.operations)} operations {done}"
    if result.reshaped:
        what += f", a reshape with {result.consumers} consumers rewritten"
    print(f"{result.node}: {what}")
    for operation in result.operations:
        print(f"  {operation}")


def _delete_host(namespace: argparse.Namespace) -> int:
    from compute_agent.manage.hosts import delete_host

    conf = _configuration(namespace)
    host = delete_host(
        _report(namespace, conf),
        namespace.name,
        evacuated=namespace.evacuated,
        dry_run=namespace.dry_run,
    )
    if namespace.json:
        print(json.dumps({"dry_run": namespace.dry_run, "host": asdict(host)}, indent=2))
    else:
        verb = "would be deleted" if namespace.dry_run else "deleted"
        print(f"{host.name} ({host.uuid}): {len(host.providers)} resource providers {verb}")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.DONE


def _adopt(namespace: argparse.Namespace) -> int:
    from compute_agent.manage import hosts

    conf = _configuration(namespace)
    state_path = Path(conf.state_path)
    report = _report(namespace, conf)
    name = hosts.adopt(report, state_path, namespace.uuid, dry_run=namespace.dry_run)
    verb = "would be" if namespace.dry_run else "is"
    if namespace.json:
        print(json.dumps({"dry_run": namespace.dry_run, "uuid": namespace.uuid, "name": name}))
    else:
        print(f"this host {verb} {namespace.uuid} ({name}) from now on")
    return Exit.WOULD_CHANGE if namespace.dry_run else Exit.DONE
