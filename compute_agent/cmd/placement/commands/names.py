"""Commands about traits, resource classes and aggregates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlencode

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import PROVIDER
from compute_agent.cmd.placement.client import Client, connect, path_segment
from compute_agent.cmd.placement.parser import Commands
from compute_agent.programs.exit_status import Exit


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    traits = commands.group("trait", "traits, and which providers have them")
    listing = traits.add("list", _list_traits, "list all traits, or the traits of a provider")
    listing.add_argument("provider", nargs="?", metavar="PROVIDER", help=PROVIDER)
    listing.add_argument("--prefix", metavar="TEXT", help="only traits that begin with this")
    listing.add_argument(
        "--associated", action="store_true", help="only traits that some provider has"
    )
    change = traits.add("set", _set_traits, "replace the traits of a provider")
    change.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    change.add_argument(
        "names", nargs="*", metavar="TRAIT", help="new traits; without any: remove all"
    )
    change.add_argument("--add", action="store_true", help="add these, and keep the others")
    change.add_argument("--remove", action="store_true", help="remove these, and keep the others")
    _add_names(traits, "traits", "trait")

    classes = commands.group("class", "resource classes")
    classes.add("list", _list_classes, "list resource classes")
    _add_names(classes, "resource_classes", "resource class")

    aggregates = commands.group("aggregate", "aggregates of providers")
    list_command = aggregates.add("list", _list_aggregates, "list the aggregates of a provider")
    list_command.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    members = aggregates.add("members", _list_members, "list the providers in an aggregate")
    members.add_argument("aggregate", metavar="UUID", help="uuid of the aggregate")
    set_command = aggregates.add("set", _set_aggregates, "replace the aggregates of a provider")
    set_command.add_argument("provider", metavar="PROVIDER", help=PROVIDER)
    set_command.add_argument(
        "names",
        nargs="*",
        metavar="UUID",
        help="uuids of the new aggregates; without any: remove all",
    )
    set_command.add_argument("--add", action="store_true", help="add these, and keep the others")
    set_command.add_argument(
        "--remove", action="store_true", help="remove these, and keep the others"
    )


def _add_names(group: Commands, path: str, what: str) -> None:
    create = group.add("create", _create, f"make sure that a custom {what} exists")
    delete = group.add("delete", _remove, f"delete a custom {what} that no provider has")
    for parser in (create, delete):
        parser.add_argument("name", metavar="NAME", help="name that begins with CUSTOM_")
        parser.set_defaults(path=path, what=what)


def _list_traits(namespace: argparse.Namespace) -> int:
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
    return _show(namespace, "name", sorted(names))


def _set_traits(namespace: argparse.Namespace) -> int:
    return _change(namespace, "traits")


def _list_classes(namespace: argparse.Namespace) -> int:
    answer = connect(namespace).get("/resource_classes", "Listing resource classes")
    return _show(namespace, "name", [entry["name"] for entry in answer["resource_classes"]])


def _list_aggregates(namespace: argparse.Namespace) -> int:
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    return _show(namespace, "uuid", client.part(provider, "aggregates")["aggregates"])


def _list_members(namespace: argparse.Namespace) -> int:
    query = urlencode({"member_of": namespace.aggregate})
    answer = connect(namespace).get(f"/resource_providers?{query}", "Listing an aggregate")
    providers = [
        {"uuid": provider["uuid"], "name": provider["name"]}
        for provider in answer["resource_providers"]
    ]
    rows = [(provider["uuid"], provider["name"]) for provider in providers]
    show_rows(namespace, ("uuid", "name"), rows, providers)
    return Exit.FINE


def _set_aggregates(namespace: argparse.Namespace) -> int:
    return _change(namespace, "aggregates")


def _change(namespace: argparse.Namespace, part: str) -> int:
    if namespace.add and namespace.remove:
        namespace.parser.error("--add and --remove exclude each other")
    client = connect(namespace)
    provider = client.provider(namespace.provider)
    present = client.part(provider, part)
    names = set(namespace.names)
    if namespace.add:
        names |= set(present[part])
    elif namespace.remove:
        names = set(present[part]) - names
    provider_as_read = {**provider, "generation": present["resource_provider_generation"]}
    _make_missing(client, part, sorted(names - set(present[part])))
    client.replace(provider_as_read, part, sorted(names))
    heading = "name" if part == "traits" else "uuid"
    return _show(namespace, heading, sorted(names))


def _make_missing(client: Client, part: str, names: Sequence[str]) -> None:
    if part == "traits":
        for name in names:
            if name.startswith("CUSTOM_"):
                client.ask("PUT", f"/traits/{path_segment(name)}", f"Creating trait {name}")


def _create(namespace: argparse.Namespace) -> int:
    path = f"/{namespace.path}/{path_segment(namespace.name)}"
    connect(namespace).ask("PUT", path, f"Creating {namespace.what} {namespace.name}")
    return Exit.FINE


def _remove(namespace: argparse.Namespace) -> int:
    path = f"/{namespace.path}/{path_segment(namespace.name)}"
    connect(namespace).ask("DELETE", path, f"Deleting {namespace.what} {namespace.name}")
    return Exit.FINE


def _show(namespace: argparse.Namespace, heading: str, names: Sequence[str]) -> int:
    show_rows(namespace, (heading,), [(name,) for name in names], list(names))
    return Exit.FINE
