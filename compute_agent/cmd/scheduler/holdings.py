"""The command `compute-scheduler list`: what consumers, a host or a project hold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from compute_agent.cmd import program
from compute_agent.cmd.logging_setup import quiet_configuration
from compute_agent.cmd.output import columns, show
from compute_agent.drift.wording import age
from compute_agent.placement.consumers import Consumers
from compute_agent.programs.exit_status import Exit
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import uuid_text
from compute_agent.scheduler.life_cycle.held import ConsumerHoldings, HoldingsReader


def list_holdings(namespace: argparse.Namespace) -> int:
    """Print what consumers, a host or a project hold."""
    given_options = [bool(namespace.consumers), bool(namespace.host), bool(namespace.project)]
    if sum(given_options) != 1:
        raise InvalidRequest(
            "the selection",
            " ".join(namespace.consumers),
            "either uuids of consumers, --host or --project",
        )
    conf = quiet_configuration(namespace)
    with closing(Consumers(program.transport(namespace, conf))) as reader:
        holdings = HoldingsReader(reader)
        if namespace.project:
            return _show_project(namespace, holdings.of_project(namespace.project))
        if namespace.host:
            held_consumers = holdings.on_host(namespace.host)
        else:
            held_consumers = holdings.of_consumers(
                uuid_text("CONSUMER", uuid) for uuid in namespace.consumers
            )
    rows = [row for entry in held_consumers for row in _rows(entry)]
    if not (rows or namespace.json):
        print("compute-scheduler list: no consumer holds anything there.", file=sys.stderr)
    document = [consumer.as_dict() for consumer in held_consumers]
    show(namespace, document, *(columns([_HEADINGS, *rows]) if rows else ()))
    return Exit.FINE if held_consumers else Exit.FAILED


_HEADINGS = ("consumer", "type", "project", "host", "provider", "held", "written")


def _rows(held_by_consumer: ConsumerHoldings) -> Iterator[tuple[str, ...]]:
    hosts = ",".join(held_by_consumer.hosts) or "(shared)"
    first = (held_by_consumer.consumer, held_by_consumer.type, held_by_consumer.project_id, hosts)
    for uuid, amounts in sorted(held_by_consumer.resources.items()):
        yield (
            *first,
            held_by_consumer.names.get(uuid, uuid),
            _amounts(amounts),
            "" if held_by_consumer.age is None else age(held_by_consumer.age),
        )
        first = ("", "", "", "")


def _show_project(namespace: argparse.Namespace, usages: Mapping[str, Mapping[str, Any]]) -> int:
    rows = [
        (
            kind,
            str(amounts.get("consumer_count", "")),
            _amounts({name: n for name, n in amounts.items() if name != "consumer_count"}),
        )
        for kind, amounts in sorted(usages.items())
    ]
    show(namespace, usages, *columns([("type", "consumers", "held"), *rows]))
    return Exit.FINE if usages else Exit.FAILED


def _amounts(amounts: Mapping[str, int]) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items()))
