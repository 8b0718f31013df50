"""Taking a host out of placement, and giving a host the identity it had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compute_agent import errors, identity, state_files

if TYPE_CHECKING:
    from compute_agent.report.client import ReportClient


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host's tree in placement: its root, its providers by name, and who holds something."""

    uuid: str
    name: str
    providers: tuple[str, ...]
    consumers: tuple[str, ...]


def find_host(report: ReportClient, name: str) -> HostFacts:
    """What placement has of the host of this name.

    :raises ComputeHostNotFound: it has no root provider of that name.
    """
    root = report.find_provider_by_name(name)
    if root is None:
        raise errors.ComputeHostNotFound(
            f"Placement has no resource provider named {name!r}. Nothing was changed; "
            "`openstack resource provider list` shows the names it has."
        )
    if root.parent_uuid is not None:
        raise errors.ComputeHostNotFound(
            f"The resource provider {name!r} ({root.uuid}) is not a host: it has the parent "
            f"{root.parent_uuid}. Name the host at the root of its tree. Nothing was changed."
        )
    tree = report.get_provider_tree(root.uuid)
    names = tuple(tree.data(uuid).name for uuid in tree.get_provider_uuids(root.uuid))
    consumers = report.get_allocations_for_provider_tree(root.uuid)
    return HostFacts(root.uuid, name, names, tuple(sorted(consumers)))


def delete_host(report: ReportClient, name: str, *, evacuated: bool, dry_run: bool) -> HostFacts:
    """Delete the host's tree, leaf first; what was, or would be, deleted.

    :param evacuated: take from consumers what they still hold here. A consumer that holds nothing
        elsewhere keeps what it has: it was not evacuated.
    :raises ResourceProviderInUse: consumers hold something here; nothing was changed.
    """
    host = find_host(report, name)
    if host.consumers:
        _release(report, host, evacuated=evacuated, dry_run=dry_run)
    if not dry_run:
        report.delete_resource_provider(host.uuid)
    return host


def _release(report: ReportClient, host: HostFacts, *, evacuated: bool, dry_run: bool) -> None:
    listed = ", ".join(host.consumers[:10]) + (" and more" if len(host.consumers) > 10 else "")
    if not evacuated:
        raise errors.ResourceProviderInUse(
            f"{len(host.consumers)} consumers hold resources of host {host.name!r}: {listed}. Move "
            "or delete them first, or say --evacuated if they run elsewhere by now. Nothing was "
            "changed."
        )
    tree = report.get_provider_tree(host.uuid)
    members = set(tree.get_provider_uuids(host.uuid))
    only_here = [
        consumer
        for consumer, record in report.get_allocations_for_provider_tree(host.uuid).items()
        if members.issuperset(record["allocations"])
    ]
    if only_here:
        raise errors.ResourceProviderInUse(
            f"{len(only_here)} consumers hold resources of host {host.name!r} and nowhere else, so "
            f"they were not evacuated: {', '.join(sorted(only_here)[:10])}. Delete their "
            "allocations if they are gone. Nothing was changed."
        )
    if not dry_run:
        for consumer in host.consumers:
            report.remove_provider_tree(consumer, host.uuid)


def adopt(report: ReportClient, state_path: Path, uuid: str, *, dry_run: bool) -> str:
    """Make this host the one whose root provider has the uuid; the provider's name.

    :raises InvalidNodeConfiguration: the host has an identity already, or the uuid is no root's.
    """
    found = identity.find([state_path])
    if found is not None:
        raise errors.InvalidNodeConfiguration(
            f"This host is {found} already ({state_path / identity.COMPUTE_ID}). Remove that file "
            "first if it shall become another; nothing was changed."
        )
    provider = report.find_provider(uuid)
    if provider is None:
        raise errors.InvalidNodeConfiguration(
            f"Placement has no resource provider {uuid}. Nothing was changed."
        )
    if provider.parent_uuid is not None:
        raise errors.InvalidNodeConfiguration(
            f"The resource provider {uuid} ({provider.name!r}) is not a host: it has the parent "
            f"{provider.parent_uuid}. Nothing was changed."
        )
    if not dry_run:
        state_files.prepare_directory(state_path)
        identity.write_compute_id(state_path, uuid)
    return provider.name
