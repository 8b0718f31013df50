"""The command `compute-agent diff A B`: differences between two hosts in placement."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from compute_agent.cmd.agent import logging_setup
from compute_agent.manage.hosts import host_tree
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.programs.exit_status import Exit
from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.provider_tree.provider import ProviderData


def diff(namespace: argparse.Namespace) -> int:
    """Print the differences; return 0 without any, 6 otherwise.

    :raises ComputeAgentError: one of the hosts cannot be read.
    """
    conf = logging_setup.quiet_configuration(namespace, verbose=namespace.debug)
    report = ReportClient(
        KeystoneTransport.from_conf(conf),
        use_extensions=conf.compute_agent.use_placement_extensions == "auto",
    )
    try:
        report.connect()
        first, second = (read_host(report, name) for name in (namespace.first, namespace.second))
    finally:
        report.close()
    all_differences = differences(first, second)
    if namespace.json:
        document = {
            "first": {"name": first.name, "uuid": first.uuid},
            "second": {"name": second.name, "uuid": second.uuid},
            "differences": [asdict(difference) for difference in all_differences],
        }
        print(json.dumps(document, indent=2))
    else:
        _print(first, second, all_differences)
    return Exit.WOULD_CHANGE if all_differences else Exit.FINE


def _print(first: HostTree, second: HostTree, all_differences: list[HostDifference]) -> None:
    if not all_differences:
        print(f"{first.name} and {second.name} are equal: {len(first.providers)} provider(s) each")
        return
    print(f"< {first.name}  {first.uuid}")
    print(f"> {second.name}  {second.uuid}")
    before = None
    for difference in all_differences:
        if difference.provider != before:
            print(difference.provider or "(root provider)")
        before = difference.provider
        if difference.aspect == PROVIDER:
            print(f"  only {'<' if difference.first == 'present' else '>'} has this provider")
        elif isinstance(difference.first, list):
            for sign, only in (("<", difference.first), (">", difference.second)):
                if only:
                    print(f"  {difference.aspect} only {sign} has: {' '.join(only)}")
        else:
            values = (
                "none" if value is None else value
                for value in (difference.first, difference.second)
            )
            print(f"  {difference.aspect}: " + " < > ".join(map(str, values)))
    print(f"{len(all_differences)} difference(s)")


PROVIDER = "provider"
ABSENT = "absent"
PRESENT = "present"


@dataclass(frozen=True, slots=True)
class HostTree:
    """The tree of one host: its root, and its providers by their names after the host's."""

    name: str
    uuid: str
    providers: Mapping[str, ProviderData]


@dataclass(frozen=True, slots=True)
class HostDifference:
    """One thing that differs.

    :ivar provider: the provider's name after the host's; empty for the root.
    :ivar aspect: `provider`, `traits`, `aggregates`, or a resource class and field of it.
    :ivar first: the value of the first host, as plain JSON types; likewise `second`.
    """

    provider: str
    aspect: str
    first: Any
    second: Any


def read_host(report: ReportClient, name_or_uuid: str) -> HostTree:
    """Read the tree of a host, by its name or its root provider's uuid.

    :raises CommandRefused: placement has no such host.
    """
    root, tree = host_tree(report, name_or_uuid)
    return tree_of_host(tree, root)


def tree_of_host(tree: ProviderTree, root: str) -> HostTree:
    """Return one host's part of a tree, without sharing providers."""
    name = tree.data(root).name
    members = [tree.data(uuid) for uuid in tree.get_provider_uuids(root)]
    return HostTree(name, root, {_relative(member.name, name): member for member in members})


def differences(first: HostTree, second: HostTree) -> list[HostDifference]:
    """Return all differences, by provider.

    Providers correspond when their names after the hosts' do. Usage, generations and uuids differ
    between any two hosts and are not compared.
    """
    return [
        difference
        for provider in sorted({*first.providers, *second.providers})
        for difference in _of_provider(
            provider, first.providers.get(provider), second.providers.get(provider)
        )
    ]


def _of_provider(
    provider: str, first: ProviderData | None, second: ProviderData | None
) -> Iterator[HostDifference]:
    if first is None or second is None:
        there = [ABSENT if data is None else PRESENT for data in (first, second)]
        yield HostDifference(provider, PROVIDER, *there)
        return
    for resource_class in sorted({*first.inventory, *second.inventory}):
        yield from _of_class(
            provider,
            resource_class,
            first.inventory.get(resource_class),
            second.inventory.get(resource_class),
        )
    for aspect, ours, theirs in (
        ("traits", first.traits, second.traits),
        ("aggregates", first.aggregates, second.aggregates),
    ):
        if ours != theirs:
            yield HostDifference(provider, aspect, sorted(ours - theirs), sorted(theirs - ours))


def _of_class(
    provider: str,
    resource_class: str,
    first: Mapping[str, Any] | None,
    second: Mapping[str, Any] | None,
) -> Iterator[HostDifference]:
    if first is None or second is None:
        totals = [None if record is None else record["total"] for record in (first, second)]
        yield HostDifference(provider, f"{resource_class} total", *totals)
        return
    for field in first:
        if first[field] != second[field]:
            yield HostDifference(provider, f"{resource_class} {field}", first[field], second[field])


def _relative(name: str, root: str) -> str:
    return name.removeprefix(root)
