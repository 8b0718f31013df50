"""The command `compute-agent diff A B`: differences between two hosts in placement."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from compute_agent.cmd import logging_setup
from compute_agent.cmd.output import show
from compute_agent.manage.hosts import host_tree
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.programs.exit_status import Exit
from compute_agent.report.client import ReportClient

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.provider_tree.provider import ProviderData

_PROVIDER, _ABSENT, _PRESENT = "provider", "absent", "present"


def diff(namespace: argparse.Namespace) -> int:
    """Print the differences; return 0 without any, 6 otherwise.

    :raises ComputeAgentError: one of the hosts cannot be read.
    """
    conf = logging_setup.quiet_configuration(namespace)
    extensions = conf.compute_agent.use_placement_extensions == "auto"
    way = KeystoneTransport.from_conf(conf)
    with closing(ReportClient(way, use_extensions=extensions)) as report:
        report.connect()
        trees = [host_tree(report, name) for name in (namespace.first, namespace.second)]
    hosts = [tree.data(root) for root, tree in trees]
    members = [providers_of(tree, root) for root, tree in trees]
    found_differences = differences(*members)
    document = {
        "first": {"name": hosts[0].name, "uuid": hosts[0].uuid},
        "second": {"name": hosts[1].name, "uuid": hosts[1].uuid},
        "differences": to_builtins(found_differences),
    }
    if found_differences:
        lines = [f"{sign} {host.name}  {host.uuid}" for sign, host in zip("<>", hosts, strict=True)]
        lines += _lines(found_differences)
    else:
        names = " and ".join(host.name for host in hosts)
        lines = [f"{names} are equal: {len(members[0])} provider(s) each"]
    show(namespace, document, *lines)
    return Exit.WOULD_CHANGE if found_differences else Exit.FINE


class HostDifference(Struct, frozen=True):
    """One thing that differs.

    :ivar provider: the provider's name after the host's; empty for the root.
    :ivar aspect: `provider`, `traits`, `aggregates`, or a resource class and field of it.
    :ivar first: the value of the first host, as plain JSON types; likewise `second`.
    """

    provider: str
    aspect: str
    first: Any
    second: Any


def providers_of(tree: ProviderTree, root: str) -> dict[str, ProviderData]:
    """Return the providers of a host alone, by their names after the host's."""
    name = tree.data(root).name
    members = map(tree.data, tree.get_provider_uuids(root))
    return {member.name.removeprefix(name): member for member in members}


def differences(
    first: Mapping[str, ProviderData], second: Mapping[str, ProviderData]
) -> list[HostDifference]:
    """Return all differences, by provider.

    Providers correspond when their names after the hosts' do. Usage, generations and uuids differ
    between any two hosts and are not compared.
    """
    return [
        HostDifference(provider, *values)
        for provider in sorted({*first, *second})
        for values in _of_provider(first.get(provider), second.get(provider))
    ]


def _of_provider(
    first: ProviderData | None, second: ProviderData | None
) -> Iterator[tuple[str, Any, Any]]:
    if first is None or second is None:
        sides = [_ABSENT if data is None else _PRESENT for data in (first, second)]
        yield _PROVIDER, sides[0], sides[1]
        return
    for name in sorted({*first.inventory, *second.inventory}):
        records = [first.inventory.get(name, {}), second.inventory.get(name, {})]
        # of a class that one of them lacks, the total says it all
        for field in max(records, key=len) if all(records) else ["total"]:
            ours, theirs = (record.get(field) for record in records)
            if ours != theirs:
                yield f"{name} {field}", ours, theirs
    for aspect in ("traits", "aggregates"):
        names, other_names = getattr(first, aspect), getattr(second, aspect)
        if names != other_names:
            yield aspect, sorted(names - other_names), sorted(other_names - names)


def _lines(found_differences: Sequence[HostDifference]) -> Iterator[str]:
    before = None
    for difference in found_differences:
        if difference.provider != before:
            yield difference.provider or "(root provider)"
        before = difference.provider
        if difference.aspect == _PROVIDER:
            yield f"  only {'<' if difference.first == _PRESENT else '>'} has this provider"
        elif isinstance(difference.first, list):
            for sign, names in (("<", difference.first), (">", difference.second)):
                if names:
                    yield f"  {difference.aspect} only {sign} has: {' '.join(names)}"
        else:
            values = (difference.first, difference.second)
            texts = ("none" if value is None else str(value) for value in values)
            yield f"  {difference.aspect}: {' < > '.join(texts)}"
    yield f"{len(found_differences)} difference(s)"
