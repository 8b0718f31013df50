"""Commands about inventories: inventory."""

from __future__ import annotations

import argparse
from typing import Any, Final

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import PROVIDER, amounts
from compute_agent.cmd.placement.client import connect, part_path, path_segment
from compute_agent.cmd.placement.errors import BadInput
from compute_agent.cmd.placement.parser import Commands
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.whole_numbers import whole

FIELDS: Final = (
    "total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio",
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.group("inventory", "what resource providers have")
    group.add("list", _list, "list the inventories of a provider").add_argument(
        "provider", metavar="PROVIDER", help=PROVIDER
    )
    change = group.add("set", _set, "set inventories of a provider, and keep the others")
    change.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    change.add_argument("amounts", nargs="+", metavar="CLASS=N", help="total of a resource class")
    for field in FIELDS[1:]:
        kind = float if field == "allocation_ratio" else whole()
        option = f"--{field.replace('_', '-')}"
        change.add_argument(option, type=kind, metavar="N", help=f"{field} of all these classes")
    change.add_argument("--only", action="store_true", help="remove the other inventories")
    delete = group.add("delete", _delete, "remove inventories of a provider")
    delete.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    delete.add_argument("classes", nargs="*", metavar="CLASS", help="resource class to remove")
    delete.add_argument("--all", action="store_true", help="remove all inventories")


def _list(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    inventories = client.part(provider, "inventories")["inventories"]
    used = client.part(provider, "usages")["usages"]
    rows = [
        (name, *(record[field] for field in FIELDS), used.get(name, 0))
        for name, record in sorted(inventories.items())
    ]
    document = {name: {**record, "used": used.get(name, 0)} for name, record in inventories.items()}
    show_rows(namespace, ("resource_class", *FIELDS[:-1], "ratio", "used"), rows, document)
    return Exit.FINE


def _set(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    present = client.part(provider, "inventories")
    given_fields = {
        field: getattr(namespace, field)
        for field in FIELDS[1:]
        if getattr(namespace, field) is not None
    }
    new_inventories: dict[str, Any] = {} if namespace.only else dict(present["inventories"])
    for name, total in amounts(namespace.amounts).items():
        new_inventories[name] = {
            **present["inventories"].get(name, {}),
            "total": total,
            **given_fields,
        }
    # The generation that belongs to the inventories which were read.
    provider_as_read = {**provider, "generation": present["resource_provider_generation"]}
    client.replace(provider_as_read, "inventories", new_inventories)
    return _list(namespace)


def _delete(namespace: argparse.Namespace) -> int:
    if bool(namespace.classes) == namespace.all:
        raise BadInput("Name the classes to remove, or use --all.")
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    path = part_path(provider, "inventories")
    paths = [f"{path}/{path_segment(name)}" for name in namespace.classes] or [path]
    for inventory in paths:
        client.ask("DELETE", inventory, f"Removing inventories of {provider['name']}")
    return Exit.FINE
