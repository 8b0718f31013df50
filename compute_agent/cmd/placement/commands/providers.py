"""Commands about resource providers and what they have: provider, tree, usage, inventory."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent.cmd.output import print_paged, show_record, show_rows
from compute_agent.cmd.placement.arguments import (
    MEMBER_OF,
    BadInput,
    Commands,
    amounts,
    query_amounts,
)
from compute_agent.cmd.placement.client import connect, part_path, path_segment
from compute_agent.cmd.trees.form import add_form_options, form_of
from compute_agent.placement.connection import CONSUMER_TYPE
from compute_agent.programs.whole_numbers import whole

_COLUMNS: Final = (
    "uuid", "name", "generation", "parent_provider_uuid", "root_provider_uuid",
)  # fmt: skip
_FIELDS: Final = (
    "total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio",
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.group("provider", "resource providers")
    listing = group.add("list", _list, "list resource providers")
    listing.add_argument("--name", metavar="NAME", help="only the provider with this name")
    listing.add_argument("--in-tree", metavar="PROVIDER", help="only in the tree of this provider")
    listing.add_argument(
        "--resources", metavar="CLASS=N,...", help="only with room for these amounts"
    )
    listing.add_argument(
        "--required", metavar="TRAIT,...", action="append", help="only with all these traits"
    )
    listing.add_argument(
        "--member-of", metavar="[in:]UUID,...", action="append", help=f"only {MEMBER_OF}"
    )
    group.add("show", _show, "show a resource provider", "provider")
    create = group.add("create", _create, "create a resource provider")
    create.add_argument("name", metavar="NAME", help="name of the new provider")
    create.add_argument(
        "--uuid", metavar="UUID", help="uuid of the new provider; default: a new one"
    )
    create.add_argument("--parent", metavar="PROVIDER", help="parent of the new provider")
    change = group.add("set", _set, "rename or move a resource provider", "provider")
    change.add_argument("--name", metavar="NAME", help="new name")
    place = change.add_mutually_exclusive_group()
    place.add_argument("--parent", metavar="PROVIDER", help="new parent")
    place.add_argument("--root", action="store_true", help="make it the root of its own tree")
    group.add("delete", _delete, "delete a resource provider", "provider")
    tree = commands.add("tree", _tree, "draw the tree of a provider, with what is used", "provider")
    add_form_options(tree)
    tree.add_argument("--full", action="store_true", help="also show all inventories and traits")
    usage = commands.add(
        "usage", _usage, "show the usage of a provider, or of a project", "provider?"
    )
    usage.add_argument("--project", metavar="ID", help="show what all consumers of a project hold")
    usage.add_argument("--user", metavar="ID", help="with --project: only what this user holds")
    _add_inventories(commands.group("inventory", "what resource providers have"))


def _add_inventories(group: Commands) -> None:
    group.add("list", _list_inventories, "list the inventories of a provider", "provider")
    change = group.add(
        "set", _set_inventories, "set inventories of a provider, and keep the others", "provider"
    )
    change.add_argument("amounts", nargs="+", metavar="CLASS=N", help="total of a resource class")
    for field in _FIELDS[1:]:
        kind = float if field == "allocation_ratio" else whole()
        option = f"--{field.replace('_', '-')}"
        change.add_argument(option, type=kind, metavar="N", help=f"{field} of all these classes")
    change.add_argument("--only", action="store_true", help="remove the other inventories")
    delete = group.add(
        "delete", _delete_inventories, "remove inventories of a provider", "provider"
    )
    delete.add_argument("classes", nargs="*", metavar="CLASS", help="resource class to remove")
    delete.add_argument("--all", action="store_true", help="remove all inventories")


def _list(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    query: list[tuple[str, str]] = []
    if namespace.name:
        query.append(("name", namespace.name))
    if namespace.in_tree:
        query.append(("in_tree", client.provider(namespace.in_tree)["uuid"]))
    if namespace.resources:
        query.append(("resources", query_amounts(namespace.resources)))
    query += [("required", value) for value in namespace.required or ()]
    query += [("member_of", value) for value in namespace.member_of or ()]
    path = "/resource_providers" + (f"?{urlencode(query)}" if query else "")
    entries = client.get(path, "Listing resource providers")["resource_providers"]
    providers = [_without_links(provider) for provider in entries]
    rows = [[provider.get(column) for column in _COLUMNS] for provider in providers]
    show_rows(namespace, ("uuid", "name", "generation", "parent", "root"), rows, providers)


def _show(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    record = {
        **_without_links(provider),
        "traits": client.part(provider, "traits")["traits"],
        "aggregates": client.part(provider, "aggregates")["aggregates"],
        "usages": client.part(provider, "usages")["usages"],
    }
    show_record(namespace, record)


def _create(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    body: dict[str, Any] = {"name": namespace.name}
    if namespace.uuid:
        body["uuid"] = namespace.uuid
    if namespace.parent:
        body["parent_provider_uuid"] = client.provider(namespace.parent)["uuid"]
    doing = f"Creating resource provider {namespace.name}"
    show_record(namespace, _without_links(client.ask("POST", "/resource_providers", doing, body)))


def _set(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    body: dict[str, Any] = {
        "name": namespace.name or provider["name"],
        "parent_provider_uuid": provider["parent_provider_uuid"],
    }
    if namespace.parent:
        body["parent_provider_uuid"] = client.provider(namespace.parent)["uuid"]
    elif namespace.root:
        body["parent_provider_uuid"] = None
    path = f"/resource_providers/{provider['uuid']}"
    changed_provider = client.ask(
        "PUT", path, f"Changing resource provider {provider['name']}", body
    )
    show_record(namespace, _without_links(changed_provider))


def _delete(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    path = f"/resource_providers/{provider['uuid']}"
    client.ask("DELETE", path, f"Deleting resource provider {provider['name']}")


def _tree(namespace: argparse.Namespace) -> None:
    from compute_agent.cmd.trees.drawing import drawing
    from compute_agent.manage.tree_reading import existing_tree

    client = connect(namespace)
    uuid = client.provider(namespace.provider)["uuid"]
    providers = existing_tree(client.connection, uuid)
    if namespace.format == "table":
        print_paged(drawing(providers, form_of(namespace, full=namespace.full, bars=True)))
        return
    rows = [
        (line.uuid, line.name, line.parent, name, stock.used, stock.capacity)
        for line in providers
        for name, stock in sorted(line.inventories.items())
        if namespace.resource_class in (None, name)
    ]
    headings = ("uuid", "name", "parent", "resource_class", "used", "capacity")
    show_rows(namespace, headings, rows, [asdict(line) for line in providers])


def _usage(namespace: argparse.Namespace) -> None:
    if namespace.provider and (namespace.project or namespace.user):
        namespace.parser.error("name a PROVIDER or --project, not both")
    if not namespace.provider and not namespace.project:
        namespace.parser.error("name a PROVIDER or --project")
    client = connect(namespace)
    if namespace.provider:
        provider = client.provider(namespace.provider)
        usages = client.part(provider, "usages")["usages"]
        rows: list[tuple[object, ...]] = sorted(usages.items())
        show_rows(namespace, ("resource_class", "used"), rows, usages)
        return
    query = {"project_id": namespace.project}
    if namespace.user:
        query["user_id"] = namespace.user
    usages = client.get(f"/usages?{urlencode(query)}", "Reading the usage of a project")["usages"]
    is_typed = client.connection.newest() >= CONSUMER_TYPE
    rows = [
        (consumer_type, name, used)
        for consumer_type, entry in sorted((usages if is_typed else {"-": usages}).items())
        for name, used in sorted(entry.items())
    ]
    show_rows(namespace, ("consumer_type", "resource_class", "used"), rows, usages)


def _without_links(provider: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in provider.items() if name != "links"}


def _list_inventories(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    inventories = client.part(provider, "inventories")["inventories"]
    used = client.part(provider, "usages")["usages"]
    document = {name: {**record, "used": used.get(name, 0)} for name, record in inventories.items()}
    rows = [
        (name, *(record[field] for field in (*_FIELDS, "used")))
        for name, record in sorted(document.items())
    ]
    show_rows(namespace, ("resource_class", *_FIELDS[:-1], "ratio", "used"), rows, document)


def _set_inventories(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    read = client.part(provider, "inventories")
    present = read["inventories"]
    given_fields = {
        field: value for field in _FIELDS[1:] if (value := getattr(namespace, field)) is not None
    }
    new_records = {
        name: {**present.get(name, {}), "total": total, **given_fields}
        for name, total in amounts(namespace.amounts).items()
    }
    kept_records = {} if namespace.only else present
    client.replace(provider, "inventories", read, {**kept_records, **new_records})
    _list_inventories(namespace)


def _delete_inventories(namespace: argparse.Namespace) -> None:
    if bool(namespace.classes) == namespace.all:
        raise BadInput("Name the classes to remove, or use --all.")
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    path = part_path(provider, "inventories")
    paths = [f"{path}/{path_segment(name)}" for name in namespace.classes] or [path]
    for inventory in paths:
        client.ask("DELETE", inventory, f"Removing inventories of {provider['name']}")
