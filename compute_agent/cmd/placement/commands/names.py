"""Commands about traits, resource classes and aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlencode

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.client import Client, path_segment
from compute_agent.cmd.placement.parser import OPTIONAL_PROVIDER, PROVIDER, Commands


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    traits = commands.group("trait", "traits, and which providers have them")
    traits.add(
        "list",
        _list_traits,
        "list all traits, or the traits of a provider",
        OPTIONAL_PROVIDER,
        """
        --prefix TEXT  only traits that begin with this
        --associated   only traits that some provider has
        """,
    )
    _add_change(traits, "traits", "TRAIT", "new traits")
    _add_names(traits, "traits", "trait")

    classes = commands.group("class", "resource classes")
    classes.add("list", _list_classes, "list resource classes")
    _add_names(classes, "resource_classes", "resource class")

    aggregates = commands.group("aggregate", "aggregates of providers")
    aggregates.add("list", _list_aggregates, "list the aggregates of a provider", PROVIDER)
    aggregates.add(
        "members",
        _list_members,
        "list the providers in an aggregate",
        "aggregate UUID  uuid of the aggregate",
    )
    _add_change(aggregates, "aggregates", "UUID", "uuids of the new aggregates")


def _add_change(group: Commands, part: str, metavar: str, names: str) -> None:
    group.add(
        "set",
        _change,
        f"replace the {part} of a provider",
        PROVIDER,
        f"""
        names {metavar} *  {names}; without any: remove all
        --add              add these, and keep the others
        --remove           remove these, and keep the others
        """,
        part=part,
    )


def _add_names(group: Commands, path: str, what: str) -> None:
    for verb, method, doing, help_ in (
        ("create", "PUT", "Creating", f"make sure that a custom {what} exists"),
        ("delete", "DELETE", "Deleting", f"delete a custom {what} that no provider has"),
    ):
        group.add(
            verb,
            _ask_for_name,
            help_,
            "name NAME  name that begins with CUSTOM_",
            method=method,
            path=path,
            doing=f"{doing} {what}",
        )


def _list_traits(namespace: argparse.Namespace, client: Client) -> None:
    if namespace.provider:
        names = client.part(client.provider(namespace.provider), "traits")["traits"]
        names = [name for name in names if name.startswith(namespace.prefix or "")]
    else:
        query: dict[str, str] = {}
        if namespace.prefix:
            query["name"] = f"startswith:{namespace.prefix}"
        if namespace.associated:
            query["associated"] = "true"
        path = "/traits" + (f"?{urlencode(query)}" if query else "")
        names = client.get(path, "Listing traits")["traits"]
    _show(namespace, "name", sorted(names))


def _list_classes(namespace: argparse.Namespace, client: Client) -> None:
    answer = client.get("/resource_classes", "Listing resource classes")
    _show(namespace, "name", [entry["name"] for entry in answer["resource_classes"]])


def _list_aggregates(namespace: argparse.Namespace, client: Client) -> None:
    provider = client.provider(namespace.provider)
    _show(namespace, "uuid", client.part(provider, "aggregates")["aggregates"])


def _list_members(namespace: argparse.Namespace, client: Client) -> None:
    query = urlencode({"member_of": namespace.aggregate})
    answer = client.get(f"/resource_providers?{query}", "Listing an aggregate")
    providers = [
        {"uuid": provider["uuid"], "name": provider["name"]}
        for provider in answer["resource_providers"]
    ]
    rows = [(provider["uuid"], provider["name"]) for provider in providers]
    show_rows(namespace, ("uuid", "name"), rows, providers)


def _change(namespace: argparse.Namespace, client: Client) -> None:
    part = namespace.part
    if namespace.add and namespace.remove:
        namespace.refuse("--add and --remove exclude each other")
    provider = client.provider(namespace.provider)
    read = client.part(provider, part)
    present, names = set(read[part]), set(namespace.names)
    if namespace.add:
        names |= present
    elif namespace.remove:
        names = present - names
    for name in sorted(names - present) if part == "traits" else ():
        if name.startswith("CUSTOM_"):
            client.ask("PUT", f"/traits/{path_segment(name)}", f"Creating trait {name}")
    client.replace(provider, part, read, sorted(names))
    _show(namespace, "name" if part == "traits" else "uuid", sorted(names))


def _ask_for_name(namespace: argparse.Namespace, client: Client) -> None:
    path = f"/{namespace.path}/{path_segment(namespace.name)}"
    client.ask(namespace.method, path, f"{namespace.doing} {namespace.name}")


def _show(namespace: argparse.Namespace, heading: str, names: Sequence[str]) -> None:
    show_rows(namespace, (heading,), [(name,) for name in names], list(names))
