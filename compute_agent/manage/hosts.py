"""Hosts in placement: their trees renamed and deleted, and an earlier identity adopted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compute_agent import errors
from compute_agent.drift.wording import count_of
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import first_of
from compute_agent.provider_tree.provider import SHARING_TRAIT
from compute_agent.state import files as state_files
from compute_agent.state import identity

if TYPE_CHECKING:
    from compute_agent.placement.api import PlacementApi
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient

SHOWN = 10


class CommandRefused(errors.ComputeAgentError):
    """A command would do harm or makes no sense; the message names what was changed."""

    exit_status = Exit.REFUSED


class HostFacts(Struct, frozen=True):
    """A host's tree in placement: its root, the names of its providers, and its consumers."""

    uuid: str
    name: str
    providers: tuple[str, ...]
    consumers: tuple[str, ...]


def root_of(placement: PlacementApi, name: str) -> tuple[str, str]:
    """Return uuid and name of the root provider with this name or uuid.

    :raises CommandRefused: there is none, or it is not a root.
    """
    provider = placement.providers.by_name(name) or placement.providers.get(name)
    if provider is None:
        raise CommandRefused(
            f"Placement has no resource provider {name!r}; `compute-manage host list` shows the "
            "hosts that it has. Nothing was changed."
        )
    if provider["parent_provider_uuid"] is not None:
        raise CommandRefused(
            f"The resource provider {name!r} is not a host: it has the parent "
            f"{provider['parent_provider_uuid']}. Nothing was changed."
        )
    return str(provider["uuid"]), str(provider["name"])


def host_tree(report: ReportClient, name: str) -> tuple[str, ProviderTree]:
    """Return the uuid of the root provider with this name or uuid, and its tree.

    :raises CommandRefused: there is none, or it is not a root.
    """
    root, _ = root_of(report.placement, name)
    return root, report.get_provider_tree(root)


def delete_host(
    report: ReportClient,
    name: str,
    *,
    is_evacuated: bool,
    dry_run: bool,
    running_agent: Callable[[str], str | None] = lambda _root: None,
) -> HostFacts:
    """Delete the host's tree, leaf first; return what was, or would be, deleted.

    :param is_evacuated: release what consumers still hold here. A consumer that holds nothing
        elsewhere is refused: it was not evacuated.
    :param running_agent: returns the evidence that an agent reports the root of this uuid, if any.
    :raises CommandRefused: the host is unknown, consumers hold something here, or its agent runs.
    """
    root, tree = host_tree(report, name)
    name = tree.data(root).name
    members = tree.get_provider_uuids(root)
    allocations = report.get_allocations_for_provider_tree(root)
    names = tuple(tree.data(uuid).name for uuid in members)
    _check_evacuated(name, members, allocations, is_evacuated=is_evacuated)
    if why := running_agent(root):
        raise CommandRefused(
            f"The agent of host {name!r} ({root}) runs ({why}), so the host will be back: its next "
            "pass creates it again. Stop the agent first, or add --force. Nothing was changed."
        )
    if not dry_run:
        _release(report, root, sorted(allocations))
        try:
            report.delete_resource_provider(root)
        except errors.ResourceProviderInUse as error:
            raise CommandRefused(
                f"Host {name!r} was taken into use while it was being deleted: {error}. Some of "
                "its providers may be gone; its agent, if it still runs, creates them again. Stop "
                "the agent and repeat the command."
            ) from error
    return HostFacts(root, name, names, tuple(sorted(allocations)))


def _check_evacuated(
    name: str,
    members: Collection[str],
    allocations: Mapping[str, Mapping[str, Any]],
    *,
    is_evacuated: bool,
) -> None:
    """Refuse to release a consumer that nobody says was evacuated, or that holds nothing else."""
    if allocations and not is_evacuated:
        raise CommandRefused(
            f"{_holders(allocations)} resources of host {name!r}: "
            f"{first_few(allocations)}. Move or delete them first, or add --evacuated if they run "
            "elsewhere by now. Nothing was changed."
        )
    only_here = [
        consumer
        for consumer, record in allocations.items()
        if set(members).issuperset(record["allocations"])
    ]
    if only_here:
        raise CommandRefused(
            f"{_holders(only_here)} resources of host {name!r} and nowhere else, so "
            f"they were not evacuated: {first_few(only_here)}. Delete their allocations if they "
            "are gone. Nothing was changed."
        )


def _release(report: ReportClient, root: str, consumers: Sequence[str]) -> None:
    for released_count, consumer in enumerate(consumers):
        try:
            report.placement.allocations.remove_provider_tree(consumer, root)
        except errors.PlacementError as error:
            released_consumers = ", ".join(consumers[:released_count]) or "none"
            raise errors.AllocationUpdateFailed(
                f"{error}. Consumers released from this host: {released_consumers}. No provider "
                "was deleted; repeat the command.",
                status=error.status,
            ) from error


def adopt(
    report: ReportClient, state_path: Path, uuid: str, *, places: Sequence[Path], dry_run: bool
) -> str:
    """Make this host the one whose root provider has the uuid; return the provider's name.

    :param places: directories that may hold an identity file.
    :raises CommandRefused: the host has an identity already, or the uuid is not that of a host.
    """
    current_uuid = identity.find(places)
    if current_uuid is not None:
        raise CommandRefused(
            f"This host is {current_uuid} already ({identity.file_in(places)}). Remove that file "
            "first if it shall become another. Nothing was changed."
        )
    marker = identity.read_marker(state_path)
    if marker is not None and marker.uuid != uuid:
        raise CommandRefused(
            f"This host was registered as {marker.uuid} ({marker.name!r}) before. Adopt that uuid, "
            f"or remove {state_path / identity.MARKER} if it really shall become another; nothing "
            "was changed."
        )
    provider = report.find_provider(uuid)
    if provider is None:
        raise CommandRefused(f"Placement has no resource provider {uuid}. Nothing was changed.")
    if provider.parent_uuid is not None or SHARING_TRAIT in provider.traits:
        why = (
            f"it has the parent {provider.parent_uuid}"
            if provider.parent_uuid is not None
            else "it shares its inventory with hosts"
        )
        raise CommandRefused(
            f"The resource provider {uuid} ({provider.name!r}) is not a host: {why}. Nothing was "
            "changed."
        )
    if not dry_run:
        state_files.prepare_directory(state_path)
        identity.write_compute_id(state_path, uuid)
    return provider.name


def first_few(uuids: Iterable[str]) -> str:
    """Return the first uuids, in order, as text."""
    return first_of(sorted(uuids), SHOWN)


def _holders(consumers: Sized) -> str:
    verb = "holds" if len(consumers) == 1 else "hold"
    return f"{count_of(len(consumers), 'consumer')} {verb}"


class Renaming(Struct, frozen=True):
    """One provider and its two names."""

    uuid: str
    old: str
    new: str


def rename(report: ReportClient, old: str, new: str, *, dry_run: bool) -> list[Renaming]:
    """Rename the host `old`; return what was, or would be, renamed, in order.

    An interrupted renaming is completed: the providers still named after `old` in the tree of
    `new` are renamed.

    :raises CommandRefused: host `old` does not exist, or a new name belongs to another provider.
    :raises ResourceProviderUpdateFailed: placement refused a name; the message lists the providers
        that were renamed before.
    """
    if old == new:
        raise CommandRefused(f"Host {old!r} has that name already. Nothing was changed.")
    root, tree = _tree_of(report, old, new)
    names = {uuid: tree.data(uuid).name for uuid in tree.get_provider_uuids(root)}
    renamings = list(_in_order(names, identity.new_names(names, old, new)))
    _check_free(report, names, renamings)
    if dry_run:
        return renamings
    done_renamings: list[Renaming] = []
    for renaming in renamings:
        try:
            report.placement.providers.put(renaming.uuid, renaming.new, None, reparents=False)
        except errors.PlacementError as error:
            so_far = (
                ", ".join(f"{r.old} is {r.new}" for r in done_renamings) or "nothing was changed"
            )
            raise errors.ResourceProviderUpdateFailed(
                f"{error}. So far: {so_far}. Repeat the command to finish the rest.",
                status=error.status,
            ) from error
        done_renamings.append(renaming)
    return done_renamings


def _tree_of(report: ReportClient, old: str, new: str) -> tuple[str, ProviderTree]:
    providers = report.placement.providers
    if providers.by_name(old) is not None:
        return host_tree(report, old)
    provider = providers.by_name(new)
    if provider is not None and provider["parent_provider_uuid"] is None:
        root, tree = host_tree(report, new)
        names = {uuid: tree.data(uuid).name for uuid in tree.get_provider_uuids(root)}
        if identity.new_names(names, old, new):
            return root, tree
        raise CommandRefused(
            f"Placement has no host {old!r}, and host {new!r} ({root}) has nothing that is "
            f"named after {old!r}: it was renamed before, or never. Nothing was changed."
        )
    return host_tree(report, old)


def _in_order(names: Mapping[str, str], new_names: Mapping[str, str]) -> Iterator[Renaming]:
    """Yield renamings, children before parents, but never to a name still in use among them.

    The host's own name changes last where it can, so that an interrupted renaming finds the host
    under its old name.
    """
    pending_names = {uuid: new_names[uuid] for uuid in reversed(list(names)) if uuid in new_names}
    while pending_names:
        in_use = {names[uuid] for uuid in pending_names}
        uuid = next((u for u, name in pending_names.items() if name not in in_use), None)
        if uuid is None:
            raise CommandRefused(
                f"The names {', '.join(sorted(in_use))} would have to be exchanged, which "
                "placement cannot do. Rename to an unused name first. Nothing was changed."
            )
        yield Renaming(uuid, names[uuid], pending_names.pop(uuid))


def _check_free(report: ReportClient, names: Mapping[str, str], renamings: list[Renaming]) -> None:
    for renaming in renamings:
        if renaming.new in names.values():
            continue
        holder = report.placement.providers.by_name(renaming.new)
        if holder is not None:
            raise CommandRefused(
                f"The name {renaming.new!r}, meant for {renaming.old!r} ({renaming.uuid}), "
                f"belongs to resource provider {holder['uuid']}. Rename or delete that one first. "
                "Nothing was changed."
            )
