"""Consistent reads of whole provider trees, as the search for candidates wants them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InventoryRow:
    """One inventory with its usage.

    :param capacity: the largest total usage that the inventory admits, an exact integer.
    :param used: the sum of all allocations against it.
    """

    resource_class_id: int
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    capacity: int
    used: int


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One resource provider with everything that decides whether it can serve a request.

    :param inventories: by ascending class id.
    :param trait_ids: ascending.
    :param aggregates: uuids as stored, sorted.
    """

    id: int
    uuid: str
    parent_id: int | None
    root_id: int
    inventories: tuple[InventoryRow, ...] = ()
    trait_ids: tuple[int, ...] = ()
    aggregates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeRows:
    """All providers with one root, by ascending id."""

    root_id: int
    providers: tuple[ProviderRow, ...]


@dataclass(frozen=True, slots=True)
class NameRows:
    """Every resource class and trait, by name."""

    class_ids: dict[str, int]
    trait_ids: dict[str, int]
