"""The body of one request that carries out a whole plan.  Pure.

The operations are carried out on a copy of the tree that placement has, each merged with what
others changed there, as the single writes merge; what differs afterwards is the body. So the plan
is the same, and so is what it leaves alone: a key that is left out, a provider that is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from compute_agent import errors
from compute_agent.provider_tree import ProviderData, ProviderTree
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory
from compute_agent.report.diff import Difference, diff
from compute_agent.report.flushing.merge import merge_inventory, merge_set
from compute_agent.report.flushing.reshape import consumer_body
from compute_agent.report.operations import (
    CreateProvider,
    DeleteProvider,
    EnsureResourceClass,
    EnsureTraits,
    KeepProvider,
    Operation,
    PutProvider,
    Reshape,
    SetAggregates,
    SetInventories,
    SetInventory,
    SetTraits,
)

HAS_CHILDREN = "it has children that are not this agent's to delete"


class AcceptedNames(NamedTuple):
    """Filters for traits and classes that placement is known to refuse."""

    traits: Callable[[Collection[str]], frozenset[str]] = frozenset
    inventory: Callable[[Inventory], Inventory] = FrozenRecord


_ALL: Final = AcceptedNames()


class TreeChange(NamedTuple):
    """A plan made into one change of the tree that placement has.

    :ivar result: the tree afterwards.
    :ivar kept_reasons: providers that the plan deletes and that stay, uuid -> reason.
    :ivar allocations: of a reshape that is still to be done; None: no allocation changes.
    """

    root_uuid: str
    live: ProviderTree
    result: ProviderTree
    difference: Difference
    kept_reasons: Mapping[str, str]
    allocations: Mapping[str, Mapping[str, Any]] | None

    def __bool__(self) -> bool:
        return bool(self.difference)

    @property
    def reshapes(self) -> bool:
        """Whether it moves inventory together with allocations."""
        return self.allocations is not None

    @property
    def within_tree(self) -> bool:
        """Whether it changes providers of this root's tree only, not one that is shared with it."""
        members_before = _members(self.live, self.root_uuid)
        has = _members(self.result, self.root_uuid)
        changes = self.difference
        written_uuids = {
            *(change.uuid for change in changes.inventories),
            *(change.uuid for change in changes.aggregates),
            *(change.uuid for change in changes.traits),
            *(change.uuid for change in changes.rename),
            *(creation.uuid for creation in changes.create),
        }
        moved_uuids = {move.uuid for move in changes.reparent}
        deleted_uuids = {deleted_provider.uuid for deleted_provider in changes.delete}
        return (
            written_uuids <= has
            and deleted_uuids <= members_before
            and moved_uuids <= members_before & has
        )

    @property
    def body(self) -> dict[str, Any]:
        """The content of the request."""
        changes = self.difference
        body: dict[str, Any] = {
            "providers": _entries(changes, self.result),
            "absent": [deleted_provider.uuid for deleted_provider in changes.delete],
        }
        if self.allocations is not None:
            members = _members(self.result, self.root_uuid)
            body["allocations"] = {
                consumer: _consumer_entry(consumer, record, members)
                for consumer, record in self.allocations.items()
            }
        return body


def tree_change(
    root_uuid: str,
    live: ProviderTree,
    operations: Sequence[Operation],
    *,
    names: AcceptedNames = _ALL,
) -> TreeChange:
    """Return what a plan changes in the tree that placement has by now.

    :param live: that tree; other writers may have changed it since the plan was made.
    :raises errors.ResourceProviderUpdateConflict: a provider that the plan needs is gone, or a new
        one is elsewhere: the pass has to begin again.
    """
    carrier = _Carrier(live.snapshot(), operations, names)
    for operation in operations:
        carrier.carry_out(operation)
    difference = diff(live, carrier.tree)
    # a reshape changes inventories and allocations together: it was done, or neither of them was
    pending_allocations = (
        carrier.allocations if difference.inventories or difference.delete else None
    )
    return TreeChange(
        root_uuid, live, carrier.tree, difference, carrier.kept_reasons, pending_allocations
    )


class _Carrier:
    """A tree in memory on which a plan is carried out, operation by operation."""

    def __init__(
        self,
        tree: ProviderTree,
        operations: Iterable[Operation],
        names: AcceptedNames,
    ) -> None:
        self.tree = tree
        self.kept_reasons: dict[str, str] = {}
        self.allocations: Mapping[str, Mapping[str, Any]] | None = None
        self._names = names
        self._doomed_uuids = {o.uuid for o in operations if isinstance(o, DeleteProvider)}

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case EnsureTraits() | EnsureResourceClass():
                return  # custom ones come into being with the first provider that has them
            case CreateProvider():
                self._create(operation)
            case PutProvider(uuid, _, name, _, parent_uuid):
                self._put(self._existing_provider(uuid), name, parent_uuid)
            case SetInventory():
                self._set_inventory(operation)
            case SetInventories(changes):
                for change in changes:
                    self._set_inventory(change)
            case Reshape(changes, allocations):
                self.allocations = allocations
                for change in changes:
                    self._set_inventory(change)
            case SetAggregates(uuid, _, before, after):
                provider = self._existing_provider(uuid)
                merged_names = merge_set(before, provider.aggregates, after)
                self.tree.update_aggregates(uuid, merged_names)
            case SetTraits(uuid, _, before, after):
                provider = self._existing_provider(uuid)
                merged_names = merge_set(before, provider.traits, self._names.traits(after))
                self.tree.update_traits(uuid, merged_names)
            case DeleteProvider(uuid):
                self._delete(uuid)
            case KeepProvider(uuid):
                self.kept_reasons[uuid] = "it is not this agent's to delete"

    def _create(self, operation: CreateProvider) -> None:
        uuid, name, parent_uuid = operation.uuid, operation.name, operation.parent_uuid
        if self.tree.exists(uuid):
            present = self.tree.data(uuid)
            if (present.name, present.parent_uuid) != (name, parent_uuid):
                raise _moved_on(f"provider {uuid} is there, as {present.name}")
            return
        try:
            if parent_uuid is None:
                self.tree.new_root(name, uuid)
            else:
                self.tree.new_child(name, parent_uuid, uuid)
        except ValueError as error:
            raise _moved_on(str(error)) from error

    def _put(self, provider: ProviderData, name: str, parent_uuid: str | None) -> None:
        try:
            self.tree.move(provider.uuid, parent_uuid)
            self.tree.rename(provider.uuid, name)
        except ValueError as error:
            raise _moved_on(str(error)) from error

    def _set_inventory(self, change: SetInventory) -> None:
        if change.uuid in self._doomed_uuids:
            return
        stored_inventory = self._existing_provider(change.uuid).inventory
        merged_inventory = merge_inventory(
            change.before, stored_inventory, self._names.inventory(change.after)
        )
        self.tree.update_inventory(change.uuid, merged_inventory, operator_keys=())

    def _delete(self, uuid: str) -> None:
        if not self.tree.exists(uuid):
            return
        if not self.tree.children(uuid):
            self.tree.remove(uuid)
            return
        self.kept_reasons[uuid] = HAS_CHILDREN
        reserved = {
            rc: {**record, "reserved": record["total"]}
            for rc, record in self.tree.data(uuid).inventory.items()
        }
        self.tree.update_inventory(uuid, reserved, operator_keys=())

    def _existing_provider(self, uuid: str) -> ProviderData:
        if not self.tree.exists(uuid):
            raise _moved_on(f"provider {uuid} is gone from placement")
        return self.tree.data(uuid)


def _moved_on(what: str) -> errors.ResourceProviderUpdateConflict:
    return errors.ResourceProviderUpdateConflict(f"{what}, the pass has to begin again")


def _members(tree: ProviderTree, root_uuid: str) -> set[str]:
    return set(tree.get_provider_uuids(root_uuid)) if tree.exists(root_uuid) else set()


def _entries(changes: Difference, result: ProviderTree) -> list[dict[str, Any]]:
    """Return the providers that change, parents first, each with the aspects that change."""
    aspects: dict[str, dict[str, Any]] = {creation.uuid: {} for creation in changes.create}
    aspects |= {move.uuid: {} for move in changes.reparent}
    aspects |= {rename.uuid: {} for rename in changes.rename}
    for inventory in changes.inventories:
        records = {rc: dict(record) for rc, record in inventory.after.items()}
        aspects.setdefault(inventory.uuid, {})["inventories"] = records
    for traits in changes.traits:
        aspects.setdefault(traits.uuid, {})["traits"] = sorted(traits.after)
    for aggregates in changes.aggregates:
        aspects.setdefault(aggregates.uuid, {})["aggregates"] = sorted(aggregates.after)
    entries = []
    for uuid in result.get_provider_uuids():
        if uuid in aspects:
            provider = result.data(uuid)
            identity = {
                "uuid": uuid,
                "name": provider.name,
                "parent_provider_uuid": provider.parent_uuid,
            }
            entries.append(identity | aspects[uuid])
    return entries


def _consumer_entry(
    consumer: str, record: Mapping[str, Any], members: Collection[str]
) -> dict[str, Any]:
    """Return what a consumer shall have in the tree; elsewhere it keeps what it has."""
    body = consumer_body(consumer, record)
    within = {p: entry for p, entry in body["allocations"].items() if p in members}
    return {**body, "allocations": within}
