"""The errors of the store.

    StoreError
    ├── NotFound
    │   ├── ProviderNotFound
    │   │   └── ReshapeProviderNotFound
    │   ├── ResourceClassNotFound
    │   ├── InventoryNotFound
    │   └── TraitNotFound
    ├── ProviderNameTaken, ProviderUuidTaken
    ├── ProviderRefused             what it asks for cannot be, in the words of the published server
    │   └── ParentNotFound
    ├── ProviderHasChildren, ProviderHasAllocations
    ├── ReservedTooLarge, InventoryExists, InventoryInUse
    ├── StandardName, NameInUse, ResourceClassExists
    ├── AllocationRefused
    │   ├── InvalidInventoryForAllocation
    │   ├── ConstraintViolated
    │   └── CapacityExceeded
    ├── StaleWrite                  the writer has not read the newest state
    │   ├── ConcurrentUpdate
    │   ├── ConsumerGenerationConflict
    │   └── ReshapeGenerationConflict
    ├── StoreUnavailable
    ├── SchemaOutOfDate
    └── SchemaRevisionUnknown

`str(error)` is a full sentence; the attributes hold what answers of the API need of it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

# The most names that an error lists, or a hostile request would make it megabytes.
_LISTED: Final = 100


def joined_names(names: Collection[str], most: int = _LISTED) -> str:
    """Join names for a sentence; of more than `most`, the first and the number of the others."""
    shown_names = ", ".join(islice(names, most))
    return f"{shown_names} and {len(names) - most} more" if len(names) > most else shown_names


class StoreError(Exception):
    """The base of all errors of the store."""


class NotFound(StoreError):
    """A request for something that does not exist."""


class StaleWrite(StoreError):
    """A write based on a state that is no longer the newest."""


class ProviderNotFound(NotFound):
    def __init__(self, uuid: str) -> None:
        super().__init__(f"No resource provider with uuid {uuid} found")
        self.uuid = uuid


class ReshapeProviderNotFound(ProviderNotFound):
    """A provider whose inventory a reshape replaces does not exist."""


class ResourceClassNotFound(NotFound):
    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"No such resource class {joined_names(self.names)}.")


class InventoryNotFound(NotFound):
    def __init__(self, resource_class: str, uuid: str) -> None:
        super().__init__(f"No inventory of class {resource_class} found for provider {uuid}.")


class TraitNotFound(NotFound):
    def __init__(self, names: Collection[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"No such trait(s): {joined_names(self.names)}.")


class ProviderNameTaken(StoreError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Another resource provider is already named {name}.")
        self.name = name


class ProviderUuidTaken(StoreError):
    def __init__(self, uuid: str) -> None:
        super().__init__(f"Another resource provider already has the uuid {uuid}.")
        self.uuid = uuid


class ProviderRefused(StoreError):
    """A name, or a place in a tree, that a provider cannot have.

    The sentence is the reason that the published server gives.
    """


class ParentNotFound(ProviderRefused):
    def __init__(self) -> None:
        super().__init__("parent provider UUID does not exist.")


class ProviderHasChildren(StoreError):
    def __init__(self, uuid: str) -> None:
        super().__init__(
            f"Unable to delete parent resource provider {uuid}: It has child resource providers."
        )


class ProviderHasAllocations(StoreError):
    def __init__(self, uuid: str) -> None:
        super().__init__(
            f"Unable to delete resource provider {uuid}: Resource provider has allocations."
        )


class ReservedTooLarge(StoreError):
    """`reserved` leaves no capacity (or less than none where it may equal the total)."""

    def __init__(self, resource_class: str, uuid: str, may_equal_total: bool) -> None:
        limit = "greater than" if may_equal_total else "greater than or equal to"
        super().__init__(
            f"Invalid inventory for '{resource_class}' on resource provider '{uuid}'. "
            f"The reserved value is {limit} total."
        )


class InventoryExists(StoreError):
    def __init__(self, resource_class: str, uuid: str) -> None:
        super().__init__(f"Provider {uuid} already has an inventory of class {resource_class}.")


class InventoryInUse(StoreError):
    """Inventories to be removed have allocations; the classes are in the order of their ids."""

    def __init__(self, resource_classes: Collection[str], uuid: str) -> None:
        self.resource_classes = tuple(resource_classes)
        super().__init__(
            f"Inventory for '{joined_names(self.resource_classes)}' on resource provider "
            f"'{uuid}' in use."
        )


class StandardName(StoreError):
    """Standard resource classes and traits are neither changed nor deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a standard name; only CUSTOM_ names can be changed.")


class NameInUse(StoreError):
    """A trait that a provider has, or a resource class that it has inventory of."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is in use by a resource provider.")


class ResourceClassExists(StoreError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Resource class {name} already exists.")


class AllocationRefused(StoreError):
    """The base of the reasons why allocations cannot be written."""


class InvalidInventoryForAllocation(AllocationRefused):
    """An allocation without inventory; the classes are in the order of their ids."""

    def __init__(self, resource_classes: Collection[str], uuids: Collection[str]) -> None:
        self.resource_classes = tuple(resource_classes)
        self.uuids = tuple(uuids)
        super().__init__(
            f"Inventory for '{joined_names(self.resource_classes)}' on resource provider "
            f"'{joined_names(self.uuids)}' invalid."
        )


class ConstraintViolated(AllocationRefused):
    def __init__(
        self,
        resource_class: str,
        uuid: str,
        requested_amount: int,
        min_unit: int,
        max_unit: int,
        step_size: int,
    ) -> None:
        super().__init__(
            f"Unable to allocate {requested_amount} of {resource_class} from provider {uuid}: "
            f"amounts are {min_unit} to {max_unit} in steps of {step_size}."
        )
        self.resource_class = resource_class
        self.uuid = uuid


class CapacityExceeded(AllocationRefused):
    """An amount beyond `free`, what the request could have, its old allocations given back."""

    def __init__(self, resource_class: str, uuid: str, requested_amount: int, free: int) -> None:
        super().__init__(
            f"Unable to allocate {requested_amount} of {resource_class} from provider {uuid}: "
            f"{free} free."
        )
        self.resource_class = resource_class
        self.uuid = uuid


class ConcurrentUpdate(StaleWrite):
    """A change of a provider (or another record) between the writer's read and its write.

    :ivar uuids: the uuids of the providers that changed, if it is about providers.
    """

    def __init__(self, detail: str, *, uuids: Collection[str] = ()) -> None:
        super().__init__(detail)
        self.uuids = tuple(uuids)


class ConsumerGenerationConflict(StaleWrite):
    """A generation in a request that is not the stored one; None for no consumer."""

    def __init__(
        self, consumer: str, stored_generation: int | None, requested_generation: int | None
    ) -> None:
        super().__init__(
            f"Consumer {consumer} has generation "
            f"{'null' if stored_generation is None else stored_generation}, the request was made "
            f"for {'null' if requested_generation is None else requested_generation}; read it "
            "again."
        )
        self.stored_generation = stored_generation
        self.requested_generation = requested_generation


class ReshapeGenerationConflict(StaleWrite):
    def __init__(self, uuid: str, stored_generation: int, requested_generation: int) -> None:
        super().__init__(
            f"resource provider generation conflict for provider {uuid}: "
            f"actual: {stored_generation}, given: {requested_generation}"
        )


class StoreUnavailable(StoreError):
    """A database that cannot be reached, or that failed all of a bounded number of tries.

    :ivar message: what clients may read of it.
    :ivar cause: the words of the database, for logs; they may name its users, tables and addresses.
    """

    def __init__(self, message: str, *, cause: str = "") -> None:
        super().__init__(f"{message}: {cause}" if cause else message)
        self.message = message
        self.cause = cause


class SchemaOutOfDate(StoreError):
    """A schema of an older revision than this version needs."""

    def __init__(self, revision: str | None, needed_revision: str) -> None:
        state = "has no schema yet" if revision is None else f"is at schema revision {revision}"
        super().__init__(
            f"The database {state}, this version needs revision {needed_revision}: run "
            "'placement-manage db sync', or set [placement_database]sync_on_startup."
        )


class SchemaRevisionUnknown(StoreError):
    """A schema revision, named or recorded in the database, that this version lacks."""

    def __init__(self, revision: str | None, reason: str) -> None:
        super().__init__(
            f"The schema (now at revision {revision}) cannot be migrated: {reason}. Where a newer "
            "version of placement-server made it, install that one; where a commit before the "
            "first release did, as of `compute-agent dev`, delete it for a new one. A database of "
            "OpenStack Placement must be at its newest revision, a082b8bb98d0, first: run its own "
            "'placement-manage db sync' there."
        )
