"""Renaming of a host's tree: its root, and the providers that are named after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.manage.hosts import CommandRefused, host_tree
from compute_agent.state import identity

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.report.client import ReportClient


@dataclass(frozen=True, slots=True)
class Renaming:
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
