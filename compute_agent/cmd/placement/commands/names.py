"""Commands about traits, resource classes and aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlencode

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import Commands
from compute_agent.cmd.placement.client import connect, path_segment


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    traits = commands.group("trait", "traits, and which providers have them")
    listing = traits.add(
        "list", _list_traits, "list all traits, or the traits of a provider", "provider?"
    )
    listing.add_argument("--prefix", metavar="TEXT", help="only traits that begin with this")
    listing.add_argument(
        "--associated", action="store_true", help="only traits that some provider has"
    )
    _add_change(traits, "traits", "TRAIT", "new traits")
    _add_names(traits, "traits", "trait")

    classes = commands.group("class", "resource classes")
    classes.add("list", _list_classes, "list resource classes")
    _add_names(classes, "resource_classes", "resource class")

    aggregates = commands.group("aggregate", "aggregates of providers")
    aggregates.add("list", _list_aggregates, "list the aggregates of a provider", "provider")
    members = aggregates.add("members", _list_members, "list the providers in an aggregate")
    members.add_argument("aggregate", metavar="UUID", help="uuid of the aggregate")
    _add_change(aggregates, "aggregates", "UUID", "uuids of the new aggregates")


def _add_change(group: Commands, part: str, metavar: str, names: str) -> None:
    parser = group.add("set", _change, f"replace the {part} of a provider", "provider")
    parser.add_argument(
        "names", nargs="*", metavar=metavar, help=f"{names}; without any: remove all"
    )
    parser.add_argument("--add", action="store_true", help="add these, and keep the others")
    parser.add_argument("--remove", action="store_true", help="remove these, and keep the others")
    parser.set_defaults(part=part)


def _add_names(group: Commands, path: str, what: str) -> None:
    for verb, method, doing, help_ in (
        ("create", "PUT", "Creating", f"make sure that a custom {what} exists"),
        ("delete", "DELETE", "Deleting", f"delete a custom {what} that no provider has"),
    ):
        parser = group.add(verb, _ask_for_name, help_)
        parser.add_argument("name", metavar="NAME", help="name that begins with CUSTOM_")
        parser.set_defaults(method=method, path=path, doing=f"{doing} {what}")


def _list_traits(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
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


def _list_classes(namespace: argparse.Namespace) -> None:
    answer = connect(namespace).get("/resource_classes", "Listing resource classes")
    _show(namespace, "name", [entry["name"] for entry in answer["resource_classes"]])


def _list_aggregates(namespace: argparse.Namespace) -> None:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    _show(namespace, "uuid", client.part(provider, "aggregates")["aggregates"])


def _list_members(namespace: argparse.Namespace) -> None:
    query = urlencode({"member_of": namespace.aggregate})
    answer = connect(namespace).get(f"/resource_providers?{query}", "Listing an aggregate")
    providers = [
        {"uuid": provider["uuid"], "name": provider["name"]}
        for provider in answer["resource_providers"]
    ]
    rows = [(provider["uuid"], provider["name"]) for provider in providers]
    show_rows(namespace, ("uuid", "name"), rows, providers)


def _change(namespace: argparse.Namespace) -> None:
    part = namespace.part
    if namespace.add and namespace.remove:
        namespace.parser.error("--add and --remove exclude each other")
    client = connect(namespace)
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


def _ask_for_name(namespace: argparse.Namespace) -> None:
    path = f"/{namespace.path}/{path_segment(namespace.name)}"
    connect(namespace).ask(namespace.method, path, f"{namespace.doing} {namespace.name}")


def _show(namespace: argparse.Namespace, heading: str, names: Sequence[str]) -> None:
    show_rows(namespace, (heading,), [(name,) for name in names], list(names))
