"""Giving a host's tree another name: its root, and the providers that are named after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compute_agent import errors
from compute_agent.manage.hosts import Refused, host_tree
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
    """Rename the host `old`; what was, or would be, renamed, in order.

    One that was interrupted is completed: the providers still named after `old` in the tree of
    `new` are renamed.

    :raises Refused: there is no host `old`, or a new name belongs to another provider.
    :raises ResourceProviderUpdateFailed: placement refused a name; the message says which
        providers have theirs already.
    """
    if old == new:
        raise Refused(f"Host {old!r} has that name already. Nothing was changed.")
    root, tree = _tree_of(report, old, new)
    names = {uuid: tree.data(uuid).name for uuid in tree.get_provider_uuids(root)}
    renamings = list(_in_order(names, identity.renamed(names, old, new)))
    _check_free(report, names, renamings)
    if dry_run:
        return renamings
    done: list[Renaming] = []
    for each in renamings:
        try:
            report.providers.put(each.uuid, each.new, None, reparents=False)
        except errors.PlacementError as error:
            so_far = ", ".join(f"{one.old} is {one.new}" for one in done) or "nothing was changed"
            raise errors.ResourceProviderUpdateFailed(
                f"{error}. So far: {so_far}. Repeat the command to finish the rest.",
                status=error.status,
            ) from error
        done.append(each)
    return done


def _tree_of(report: ReportClient, old: str, new: str) -> tuple[str, ProviderTree]:
    if report.find_provider_by_name(old) is not None:
        return host_tree(report, old)
    taken = report.find_provider_by_name(new)
    if taken is not None and taken.parent_uuid is None:
        tree = report.get_provider_tree(taken.uuid)
        names = {uuid: tree.data(uuid).name for uuid in tree.get_provider_uuids(taken.uuid)}
        if identity.renamed(names, old, new):
            return taken.uuid, tree
        raise Refused(
            f"Placement has no host {old!r}, and host {new!r} ({taken.uuid}) has nothing that is "
            f"named after {old!r}: it was renamed before, or never. Nothing was changed."
        )
    return host_tree(report, old)


def _in_order(names: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Renaming]:
    """Children before parents, but never to a name that another of them still has.

    The host's own name changes last where it can, so that an interrupted renaming finds the host
    under its old name.
    """
    left = {uuid: wanted[uuid] for uuid in reversed(list(names)) if uuid in wanted}
    while left:
        held = {names[uuid] for uuid in left}
        uuid = next((each for each, name in left.items() if name not in held), None)
        if uuid is None:
            raise Refused(
                f"The names {', '.join(sorted(held))} would have to be exchanged, which placement "
                "cannot do. Rename to a name that is not in use first. Nothing was changed."
            )
        yield Renaming(uuid, names[uuid], left.pop(uuid))


def _check_free(report: ReportClient, names: Mapping[str, str], renamings: list[Renaming]) -> None:
    for each in renamings:
        if each.new in names.values():
            continue
        holder = report.providers.by_name(each.new)
        if holder is not None:
            raise Refused(
                f"The name {each.new!r}, which {each.old!r} ({each.uuid}) would have, belongs to "
                f"resource provider {holder['uuid']}. Rename or delete that one first. Nothing was "
                "changed."
            )
