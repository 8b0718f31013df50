"""The command `audit`: allocations whose consumer no longer exists."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from compute_agent.cmd.manage import sources
from compute_agent.cmd.manage.options import (
    ManageParser,
    add_common,
    configuration,
    transport,
    uuid_of,
)
from compute_agent.cmd.progress import progress_bars
from compute_agent.drift import wording
from compute_agent.drift.wording import count_of
from compute_agent.programs.exit_status import Exit, ExitStatus, exit_table
from compute_agent.programs.whole_numbers import whole

if TYPE_CHECKING:
    from compute_agent.manage.audit import AuditResult
    from compute_agent.placement.consumers import Consumer


class AuditExit(ExitStatus):
    """Exit status of `audit`. Orphans count for more than consumers that could not be judged."""

    NONE = 0, "no orphan"
    ERROR = 1, "error; the output lists what was deleted before"
    FOUND = 3, "orphans found, and not all of them deleted"
    DELETED = 4, "orphans found, and all of them deleted"
    NOT_JUDGED = 5, "no orphan found, but some consumers could not be judged"


STATUS = exit_table(statuses=[*AuditExit, Exit.BAD_ARGUMENTS])


def add_command(commands: argparse._SubParsersAction[ManageParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "audit",
        help="find allocations whose consumer no longer exists",
        description="Find allocations whose consumer no longer exists, and delete them with\n"
        "--delete. Report other inconsistencies. In Nova: nova-manage placement audit.",
        epilog=STATUS,
    )
    add_common(parser, _audit, lambda _error: AuditExit.ERROR)
    parser.add_argument(
        "--delete",
        action="store_true",
        help="delete what is found, after a second check half of --min-age later",
    )
    parser.add_argument(
        "--resource_provider",
        type=uuid_of,
        metavar="UUID",
        help="only consumers that hold something of this provider",
    )
    parser.add_argument(
        "--min-age",
        type=whole(),
        default=3600,
        metavar="SECONDS",
        help="ignore allocations that were written more recently; default: %(default)s",
    )
    parser.add_argument(
        "--host-age",
        type=whole(),
        default=86400,
        metavar="SECONDS",
        help="report empty trees of hosts without an agent that were not written for this time; "
        "default: %(default)s",
    )
    sources.add_instances(parser)


def _audit(namespace: argparse.Namespace) -> int:
    from compute_agent.drift.instances.configured import listing_source
    from compute_agent.manage.audit import Audit
    from compute_agent.placement.consumers import Consumers

    conf = configuration(namespace)
    way = transport(namespace, conf)
    with progress_bars() as bars, ExitStack() as closing:
        source = listing_source(conf, closing, namespace.instances, bars.show)
        consumers = Consumers(
            way, connections=conf.compute_agent.placement_connections, progress=bars.update
        )
        try:
            result = Audit(
                consumers,
                source,
                bars.wait,
                delete=namespace.delete and not namespace.dry_run,
                provider=namespace.resource_provider,
                min_age=namespace.min_age,
                host_age=namespace.host_age,
            ).run()
        finally:
            consumers.close()
    if namespace.json:
        print(json.dumps(_document(result, source.name), indent=2))
    else:
        _print(result)
    return _status(result)


def _status(result: AuditResult) -> AuditExit:
    if result.failure is not None:
        return AuditExit.ERROR
    if result.orphans:
        all_deleted = len(result.deleted_uuids) == len(result.orphans)
        return AuditExit.DELETED if all_deleted else AuditExit.FOUND
    return AuditExit.NOT_JUDGED if result.unjudged_consumers else AuditExit.NONE


def _document(result: AuditResult, source: str) -> dict[str, Any]:
    return {
        "source": source,
        "consumers": result.consumers,
        "young": result.young,
        "orphans": [_consumer(result, orphan) for orphan in result.orphans],
        "deleted": result.deleted_uuids,
        "kept": [{"uuid": s.consumer.uuid, "reason": s.reason} for s in result.kept_orphans],
        "unknown": [
            {**_consumer(result, s.consumer), "reason": s.reason} for s in result.unjudged_consumers
        ],
        "findings": [{"what": f.what, "uuid": f.uuid, "detail": f.detail} for f in result.findings],
        "failure": None if result.failure is None else str(result.failure),
    }


def _consumer(result: AuditResult, consumer: Consumer) -> dict[str, Any]:
    return {
        "uuid": consumer.uuid,
        "type": consumer.type,
        "project_id": consumer.record.get("project_id"),
        "age": consumer.age,
        "allocations": {
            uuid: {"name": result.directory.name(uuid), "resources": dict(resources)}
            for uuid, resources in consumer.resources.items()
        },
    }


def _print(result: AuditResult) -> None:
    deleted_uuids = set(result.deleted_uuids)
    for consumer in result.orphans:
        state = "deleted" if consumer.uuid in deleted_uuids else "orphan"
        print(
            f"{state} {consumer.uuid} ({consumer.type or 'no type'}): {_holding(result, consumer)}"
        )
    for suspect in result.unjudged_consumers:
        amounts = _holding(result, suspect.consumer)
        print(f"unknown {suspect.consumer.uuid}: {suspect.reason}; it holds {amounts}")
    for finding in result.findings:
        print(f"{finding.what} {finding.uuid}: {finding.detail}")
    print(
        f"{count_of(result.consumers, 'consumer')}: {count_of(len(result.orphans), 'orphan')}, "
        f"{len(deleted_uuids)} deleted, "
        f"{len(result.unjudged_consumers)} could not be judged, {result.young} too young"
    )
    for suspect in result.kept_orphans:
        print(f"not deleted {suspect.consumer.uuid}: {suspect.reason}", file=sys.stderr)
    if result.failure is not None:
        print(
            f"compute-manage placement audit: deleting ended early: {result.failure}. Repeat the "
            "command for the rest.",
            file=sys.stderr,
        )


def _holding(result: AuditResult, consumer: Consumer) -> str:
    return wording.allocations(consumer.resources, result.directory.name)
