"""The commands that go on with an instance: reschedule, delete, attach and detach."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compute_agent.placement.allocations.amounts import MutableAmounts
    from compute_agent.scheduler.life_cycle.claim import Claim
    from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
    from compute_agent.scheduler.placement.client import PlacementClient


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of `compute-scheduler`."""
    reschedule = commands.add_parser(
        "reschedule", help="claim another host for an instance that could not be built"
    )
    add_instance(reschedule, "request specification")
    reschedule.add_argument(
        "--failed",
        metavar="HOST",
        action="append",
        required=True,
        help="host that was tried before; may be given several times",
    )
    reschedule.set_defaults(function=_reschedule, json=True)

    delete = commands.add_parser("delete", help="release what a deleted instance holds")
    add_instance(delete)
    delete.add_argument(
        "--migration",
        metavar="UUID",
        action="append",
        default=[],
        help="consumer of an unfinished move of the instance; may be given several times",
    )
    delete.add_argument(
        "--local",
        action="store_true",
        help="delete it although its host is down; refused if the agent of the host is alive",
    )
    delete.set_defaults(function=_delete, json=True)

    for name, function, help_, content in (
        (
            "attach",
            _attach,
            "add a port or accelerator to an instance",
            "request specification of only the new groups",
        ),
        (
            "detach",
            _detach,
            "remove an attached port or accelerator from an instance",
            "output of attach",
        ),
    ):
        command = commands.add_parser(name, help=help_)
        add_instance(command, content)
        command.add_argument(
            "--before",
            metavar="FILE",
            help="what the instance holds before the change, as JSON {PROVIDER: {CLASS: AMOUNT}}; "
            "with it the command can be repeated",
        )
        command.set_defaults(function=function, json=True)


def add_instance(command: argparse.ArgumentParser, content: str = "") -> None:
    """Add the argument that names an instance, and the one that names a file with `content`."""
    command.add_argument("instance", metavar="UUID", help="uuid of the instance")
    if content:
        add_file(command, content)


def add_file(command: argparse.ArgumentParser, content: str) -> None:
    """Add the argument that names a file of JSON."""
    help_ = f"{content}; JSON; default: standard input"
    command.add_argument("file", nargs="?", default="-", metavar="FILE", help=help_)


def claim_document(claim: Claim, client: PlacementClient) -> dict[str, Any]:
    """Return a claim as `compute-scheduler` prints it, with the names of its providers."""
    names = client.provider_names(claim.allocations)
    return {
        "consumer": claim.instance,
        "host": claim.host,
        "root_provider": claim.root,
        "allocations": {
            provider: {"name": names.get(provider, provider), "resources": dict(resources)}
            for provider, resources in claim.allocations.items()
        },
        "mappings": {suffix: list(uuids) for suffix, uuids in claim.mappings.items()},
    }


def _life_cycle(namespace: argparse.Namespace, *, chooses: bool = False) -> LifeCycle:
    from compute_agent.cmd.scheduler.configured import assemble
    from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle

    return LifeCycle(assemble(namespace, chooses=chooses))


def _instance(namespace: argparse.Namespace) -> str:
    from compute_agent.request.extra_specs import uuid_text

    return uuid_text("INSTANCE", namespace.instance)


def _reschedule(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.configured import assemble, read_json
    from compute_agent.request import spec_reader
    from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle

    spec, instance = spec_reader.read_spec(read_json(namespace.file)), _instance(namespace)
    parts = assemble(namespace, chooses=True)
    claim = LifeCycle(parts).reschedule(spec, instance, namespace.failed)
    print(json.dumps(claim_document(claim, parts.client), indent=2))


def _delete(namespace: argparse.Namespace) -> None:
    from compute_agent.request.extra_specs import uuid_text

    instance = _instance(namespace)
    migrations = [uuid_text("--migration", uuid) for uuid in namespace.migration]
    # only a local delete asks who is alive
    life_cycle = _life_cycle(namespace, chooses=namespace.local)
    delete = life_cycle.local_delete if namespace.local else life_cycle.delete
    print(json.dumps({"deleted": instance, "released": delete(instance, migrations)}))


def _attach(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.configured import read_json
    from compute_agent.request import spec_reader

    spec = spec_reader.read_spec(read_json(namespace.file))
    outcome = _life_cycle(namespace).attach(spec, _instance(namespace), _before(namespace))
    print(json.dumps(outcome.as_dict(), indent=2))


def _detach(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.scheduler.configured import read_json

    body, instance = read_json(namespace.file), _instance(namespace)
    resources = _amounts("allocations", body.get("allocations", body))
    _life_cycle(namespace).detach(instance, resources, _before(namespace))
    print(json.dumps({"detached": resources, "instance": instance}))


def _before(namespace: argparse.Namespace) -> MutableAmounts | None:
    from compute_agent.cmd.scheduler.configured import read_json

    return _amounts("--before", read_json(namespace.before)) if namespace.before else None


def _amounts(name: str, body: Mapping[str, Any]) -> MutableAmounts:
    from compute_agent.request.spec_reader import Fields

    fields = Fields(body, name)
    return {uuid: dict(fields.resources(uuid)) for uuid in body}
