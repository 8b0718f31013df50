"""Commands about resource providers and what they have: provider, tree, usage, inventory."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import to_builtins

from compute_agent.cmd.output import print_paged, show_record, show_rows
from compute_agent.cmd.placement.arguments import MEMBER_OF, BadInput, amounts, query_amounts
from compute_agent.cmd.placement.client import Client, part_path, path_segment
from compute_agent.cmd.placement.parser import OPTIONAL_PROVIDER, PROVIDER, Commands
from compute_agent.cmd.shared_options import FORM_OPTIONS
from compute_agent.cmd.trees.form import form_of
from compute_agent.placement.connection import CONSUMER_TYPE
from compute_agent.programs.arguments import arguments
from compute_agent.programs.whole_numbers import whole

_COLUMNS: Final = (
    "uuid", "name", "generation", "parent_provider_uuid", "root_provider_uuid",
)  # fmt: skip
_FIELDS: Final = (
    "total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio",
)  # fmt: skip
_NEW_PLACE: Final = arguments(
    """
    --parent PROVIDER  new parent
    --root             make it the root of its own tree
    """
)


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.group("provider", "resource providers")
    group.add(
        "list",
        _list,
        "list resource providers",
        """
        --name NAME              only the provider with this name
        --in-tree PROVIDER       only in the tree of this provider
        --resources CLASS=N,...  only with room for these amounts
        --required TRAIT,... *   only with all these traits
        """,
        MEMBER_OF,
    )
    group.add("show", _show, "show a resource provider", PROVIDER)
    group.add(
        "create",
        _create,
        "create a resource provider",
        """
        name NAME          name of the new provider
        --uuid UUID        uuid of the new provider; default: a new one
        --parent PROVIDER  parent of the new provider
        """,
    )
    group.add(
        "set",
        _set,
        "rename or move a resource provider",
        PROVIDER,
        "--name NAME  new name",
        lambda parser: _NEW_PLACE(parser.add_mutually_exclusive_group()),
    )
    group.add("delete", _delete, "delete a resource provider", PROVIDER)
    commands.add(
        "tree",
        _tree,
        "draw the tree of a provider, with what is used",
        PROVIDER,
        FORM_OPTIONS,
        "--full  also show all inventories and traits",
    )
    commands.add(
        "usage",
        _usage,
        "show the usage of a provider, or of a project",
        OPTIONAL_PROVIDER,
        """
        --project ID  show what all consumers of a project hold
        --user ID     with --project: only what this user holds
        """,
    )
    _add_inventories(commands.group("inventory", "what resource providers have"))


def _add_inventories(group: Commands) -> None:
    group.add("list", _list_inventories, "list the inventories of a provider", PROVIDER)
    fields = "\n".join(f"--{f.replace('_', '-')} N  {f} of all these classes" for f in _FIELDS[1:])
    types = dict.fromkeys(_FIELDS[1:], whole()) | {"allocation_ratio": float}
    group.add(
        "set",
        _set_inventories,
        "set inventories of a provider, and keep the others",
        PROVIDER,
        "amounts CLASS=N +  total of a resource class",
        arguments(fields, **types),
        "--only  remove the other inventories",
    )
    group.add(
        "delete",
        _delete_inventories,
        "remove inventories of a provider",
        PROVIDER,
        """
        classes CLASS *  resource class to remove
        --all            remove all inventories
        """,
    )


def _list(namespace: argparse.Namespace, client: Client) -> None:
    query: list[tuple[str, str]] = []
    if namespace.name:
        query.append(("name", namespace.name))
    if namespace.in_tree:
        query.append(("in_tree", client.provider(namespace.in_tree)["uuid"]))
    if namespace.resources:
        query.append(("resources", query_amounts(namespace.resources)))
    query += [("required", value) for value in namespace.required]
    query += [("member_of", value) for value in namespace.member_of]
    path = "/resource_providers" + (f"?{urlencode(query)}" if query else "")
    entries = client.get(path, "Listing resource providers")["resource_providers"]
    providers = [_without_links(provider) for provider in entries]
    rows = [[provider.get(column) for column in _COLUMNS] for provider in providers]
    show_rows(namespace, ("uuid", "name", "generation", "parent", "root"), rows, providers)


def _show(namespace: argparse.Namespace, client: Client) -> None:
    provider = client.provider(namespace.provider)
    record = {
        **_without_links(provider),
        "traits": client.part(provider, "traits")["traits"],
        "aggregates": client.part(provider, "aggregates")["aggregates"],
        "usages": client.part(provider, "usages")["usages"],
    }
    show_record(namespace, record)


def _create(namespace: argparse.Namespace, client: Client) -> None:
    body: dict[str, Any] = {"name": namespace.name}
    if namespace.uuid:
        body["uuid"] = namespace.uuid
    if namespace.parent:
        body["parent_provider_uuid"] = client.provider(namespace.parent)["uuid"]
    doing = f"Creating resource provider {namespace.name}"
    show_record(namespace, _without_links(client.ask("POST", "/resource_providers", doing, body)))


def _set(namespace: argparse.Namespace, client: Client) -> None:
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


def _delete(namespace: argparse.Namespace, client: Client) -> None:
    provider = client.provider(namespace.provider)
    path = f"/resource_providers/{provider['uuid']}"
    client.ask("DELETE", path, f"Deleting resource provider {provider['name']}")


def _tree(namespace: argparse.Namespace, client: Client) -> None:
    from compute_agent.cmd.trees.drawing import drawing
    from compute_agent.manage.tree_reading import existing_tree

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
    show_rows(namespace, headings, rows, to_builtins(providers))


def _usage(namespace: argparse.Namespace, client: Client) -> None:
    if namespace.provider and (namespace.project or namespace.user):
        namespace.refuse("name a PROVIDER or --project, not both")
    if not namespace.provider and not namespace.project:
        namespace.refuse("name a PROVIDER or --project")
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


def _list_inventories(namespace: argparse.Namespace, client: Client) -> None:
    provider = client.provider(namespace.provider)
    inventories = client.part(provider, "inventories")["inventories"]
    used = client.part(provider, "usages")["usages"]
    document = {name: {**record, "used": used.get(name, 0)} for name, record in inventories.items()}
    rows = [
        (name, *(record[field] for field in (*_FIELDS, "used")))
        for name, record in sorted(document.items())
    ]
    show_rows(namespace, ("resource_class", *_FIELDS[:-1], "ratio", "used"), rows, document)


def _set_inventories(namespace: argparse.Namespace, client: Client) -> None:
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
    _list_inventories(namespace, client)


def _delete_inventories(namespace: argparse.Namespace, client: Client) -> None:
    if bool(namespace.classes) == namespace.all:
        raise BadInput("Name the classes to remove, or use --all.")
    provider = client.provider(namespace.provider)
    path = part_path(provider, "inventories")
    paths = [f"{path}/{path_segment(name)}" for name in namespace.classes] or [path]
    for inventory in paths:
        client.ask("DELETE", inventory, f"Removing inventories of {provider['name']}")
