"""Commands about what consumers hold: allocation."""

from __future__ import annotations

import argparse
from typing import Any

from compute_agent.cmd.output import show_rows
from compute_agent.cmd.placement.arguments import BadInput, provider_amounts
from compute_agent.cmd.placement.client import Client, NamedThingMissing
from compute_agent.cmd.placement.parser import CONSUMER, PROVIDER, Commands
from compute_agent.placement.allocations.allocations import INSTANCE
from compute_agent.placement.connection import CONSUMER_TYPE


def add_commands(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.group("allocation", "what consumers hold")
    group.add("show", _show, "show what a consumer holds", CONSUMER)
    group.add("list", _list, "list what each consumer holds of a provider", PROVIDER)
    group.add(
        "set",
        _set,
        "replace the allocations of a consumer",
        CONSUMER,
        """
        holdings PROVIDER:CLASS=N,... +  all that the consumer is to hold of this provider
        --project ID                     required for a new consumer
        --user ID                        required for a new consumer
        --type TYPE                      type of the consumer, such as INSTANCE
        """,
    )
    group.add("delete", _delete, "delete all allocations of a consumer", CONSUMER)


def read(client: Client, consumer: str) -> dict[str, Any]:
    """Return what a consumer holds; `allocations` is empty when that is nothing."""
    record: dict[str, Any] = client.get(
        f"/allocations/{consumer}", f"Reading what consumer {consumer} holds"
    )
    return record


def _show(namespace: argparse.Namespace, client: Client) -> None:
    record = read(client, namespace.consumer)
    if not record["allocations"]:
        raise NamedThingMissing(f"Consumer {namespace.consumer} holds nothing.")
    rows = [
        (provider, client.provider(provider)["name"], name, used)
        for provider, entry in record["allocations"].items()
        for name, used in sorted(entry["resources"].items())
    ]
    show_rows(namespace, ("provider", "name", "resource_class", "used"), rows, record)


def _list(namespace: argparse.Namespace, client: Client) -> None:
    provider = client.provider(namespace.provider)
    allocations = client.part(provider, "allocations")["allocations"]
    rows = [
        (consumer, name, used)
        for consumer, entry in allocations.items()
        for name, used in sorted(entry["resources"].items())
    ]
    show_rows(namespace, ("consumer", "resource_class", "used"), rows, allocations)


def _set(namespace: argparse.Namespace, client: Client) -> None:
    present = read(client, namespace.consumer)
    allocations: dict[str, Any] = {}
    for holding in namespace.holdings:
        name, resources = provider_amounts(holding)
        provider = client.provider(name)["uuid"]
        allocations.setdefault(provider, {"resources": {}})["resources"].update(resources)
    body = {
        "allocations": allocations,
        "project_id": namespace.project or present.get("project_id"),
        "user_id": namespace.user or present.get("user_id"),
        "consumer_generation": present.get("consumer_generation"),
    }
    if not (body["project_id"] and body["user_id"]):
        raise BadInput(f"Consumer {namespace.consumer} is new: give it --project and --user.")
    if client.connection.newest() >= CONSUMER_TYPE:
        body["consumer_type"] = namespace.type or present.get("consumer_type") or INSTANCE
    path = f"/allocations/{namespace.consumer}"
    client.ask("PUT", path, f"Writing what consumer {namespace.consumer} holds", body)
    _show(namespace, client)


def _delete(namespace: argparse.Namespace, client: Client) -> None:
    path = f"/allocations/{namespace.consumer}"
    client.ask("DELETE", path, f"Taking everything from {namespace.consumer}")
