"""Commands about resource providers: provider, tree, usage."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlencode

from compute_agent.cmd.console import print_paged
from compute_agent.cmd.output import show_record, show_rows
from compute_agent.cmd.placement.arguments import MEMBER_OF, PROVIDER, query_amounts
from compute_agent.cmd.placement.client import connect
from compute_agent.cmd.placement.parser import Commands
from compute_agent.cmd.trees.form import add_form_options, form_of
from compute_agent.placement.connection import CONSUMER_TYPE
from compute_agent.programs.exit_status import Exit

_COLUMNS: Final = (
    "uuid", "name", "generation", "parent_provider_uuid", "root_provider_uuid",
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
        "--member-of",
        metavar="[in:]UUID,...",
        action="append",
        help=f"only {MEMBER_OF}",
    )
    group.add("show", _show, "show a resource provider").add_argument(
        "provider", metavar="PROVIDER", help=PROVIDER
    )
    create = group.add("create", _create, "create a resource provider")
    create.add_argument("name", metavar="NAME", help="name of the new provider")
    create.add_argument(
        "--uuid", metavar="UUID", help="uuid of the new provider; default: a new one"
    )
    create.add_argument("--parent", metavar="PROVIDER", help="parent of the new provider")
    change = group.add("set", _set, "rename or move a resource provider")
    change.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    change.add_argument("--name", metavar="NAME", help="new name")
    place = change.add_mutually_exclusive_group()
    place.add_argument("--parent", metavar="PROVIDER", help="new parent")
    place.add_argument("--root", action="store_true", help="make it the root of its own tree")
    group.add("delete", _delete, "delete a resource provider").add_argument(
        "provider", metavar="PROVIDER", help=PROVIDER
    )
    tree = commands.add("tree", _tree, "draw the tree of a provider, with what is used")
    tree.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    add_form_options(tree)
    tree.add_argument("--full", action="store_true", help="also show all inventories and traits")
    usage = commands.add("usage", _usage, "show the usage of a provider, or of a project")
    usage.add_argument("provider", nargs="?", metavar="PROVIDER", help=PROVIDER)
    usage.add_argument("--project", metavar="ID", help="show what all consumers of a project hold")
    usage.add_argument("--user", metavar="ID", help="with --project: only what this user holds")


def _list(namespace: argparse.Namespace) -> int:
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
    return Exit.FINE


def _show(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    record = {
        **_without_links(provider),
        "traits": client.part(provider, "traits")["traits"],
        "aggregates": client.part(provider, "aggregates")["aggregates"],
        "usages": client.part(provider, "usages")["usages"],
    }
    show_record(namespace, record)
    return Exit.FINE


def _create(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    body: dict[str, Any] = {"name": namespace.name}
    if namespace.uuid:
        body["uuid"] = namespace.uuid
    if namespace.parent:
        body["parent_provider_uuid"] = client.provider(namespace.parent)["uuid"]
    doing = f"Creating resource provider {namespace.name}"
    show_record(namespace, _without_links(client.ask("POST", "/resource_providers", doing, body)))
    return Exit.FINE


def _set(namespace: argparse.Namespace) -> int:
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
    return Exit.FINE


def _delete(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    path = f"/resource_providers/{provider['uuid']}"
    client.ask("DELETE", path, f"Deleting resource provider {provider['name']}")
    return Exit.FINE


def _tree(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.trees.drawing import drawing
    from compute_agent.manage.tree_reading import existing_tree

    client = connect(namespace)
    uuid = client.provider(namespace.provider)["uuid"]
    providers = existing_tree(client.connection, uuid)
    if namespace.format == "table":
        print_paged(drawing(providers, form_of(namespace, full=namespace.full, bars=True)))
        return Exit.FINE
    rows = [
        (line.uuid, line.name, line.parent, name, stock.used, stock.capacity)
        for line in providers
        for name, stock in sorted(line.inventories.items())
        if namespace.resource_class in (None, name)
    ]
    headings = ("uuid", "name", "parent", "resource_class", "used", "capacity")
    show_rows(namespace, headings, rows, [asdict(line) for line in providers])
    return Exit.FINE


def _usage(namespace: argparse.Namespace) -> int:
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
        return Exit.FINE
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
    return Exit.FINE


def _without_links(provider: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in provider.items() if name != "links"}
