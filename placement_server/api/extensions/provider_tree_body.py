"""The body of PUT /provider_trees/{uuid}, checked beyond its schema."""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from placement_server import errors, limits
from placement_server.schemas.validation import pointer
from placement_server.store.providers.capacity import reserved_is_valid
from placement_server.store.records import KEEP, InventoryRecord
from placement_server.store.trees.tree_write import HoldingsWrite, ProviderWrite, TreeWrite

_WHOLE: Final = ("total", "reserved", "min_unit", "max_unit", "step_size")


def tree_write(root_uuid: str, body: Mapping[str, Any], tags: Container[str] | None) -> TreeWrite:
    """Return the write that a body asks for.

    :raises errors.BadRequest: it contradicts itself, or names too much.
    """
    providers: dict[str, ProviderWrite] = {}
    names: set[str] = set()
    for number, entry in enumerate(body["providers"]):
        path = ("providers", number)
        target = _provider_write(entry, path)
        if target.uuid in providers:
            raise _malformed_error(f"{target.uuid} is there twice.", *path, "uuid")
        if target.name in names:
            raise _malformed_error(f"{target.name} is the name of two providers.", *path, "name")
        providers[target.uuid] = target
        names.add(target.name)
    for number, absent in enumerate(body.get("absent", ())):
        if absent in providers:
            raise _malformed_error(f"{absent} is among the providers as well.", "absent", number)
    write = TreeWrite(
        root_uuid,
        providers,
        body.get("absent", ()),
        {
            consumer: _holdings_write(consumer, entry)
            for consumer, entry in body.get("allocations", {}).items()
        },
        tags,
    )
    _check_names(write)
    return write


def _provider_write(entry: Mapping[str, Any], path: tuple[str | int, ...]) -> ProviderWrite:
    if not _is_uuid(entry["uuid"]):
        raise _malformed_error(f"{entry['uuid']} is not a UUID.", *path, "uuid")
    inventories = entry.get("inventories")
    return ProviderWrite(
        entry["uuid"],
        entry["name"],
        entry["parent_provider_uuid"],
        entry.get("generation"),
        None
        if inventories is None
        else {
            name: _record(record, (*path, "inventories", name))
            for name, record in inventories.items()
        },
        _set_of(entry.get("traits")),
        _set_of(entry.get("aggregates")),
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _record(entry: Mapping[str, Any], path: tuple[str | int, ...]) -> InventoryRecord:
    # JSON knows one kind of numbers: 4.0 is whole as well
    fields = {name: int(entry[name]) for name in _WHOLE if name in entry}
    record = InventoryRecord(**fields, allocation_ratio=float(entry.get("allocation_ratio", 1.0)))
    if not reserved_is_valid(
        record.total, record.reserved, record.allocation_ratio, may_equal_total=True
    ):
        raise _malformed_error(
            f"{record.reserved} is greater than the total {record.total}.", *path, "reserved"
        )
    return record


def _set_of(values: Iterable[str] | None) -> frozenset[str] | None:
    return None if values is None else frozenset(values)


def _holdings_write(consumer: str, entry: Mapping[str, Any]) -> HoldingsWrite:
    consumer_type = entry.get("consumer_type", KEEP)
    return HoldingsWrite(
        consumer,
        {
            provider: {name: int(amount) for name, amount in holding["resources"].items()}
            for provider, holding in entry["allocations"].items()
        },
        entry["consumer_generation"],
        entry.get("project_id"),
        entry.get("user_id"),
        # as consumers without a type are shown
        None if consumer_type == "unknown" else consumer_type,
    )


def _check_names(write: TreeWrite) -> None:
    """Refuse a body that names too much in all its parts together."""
    targets = write.providers.values()
    held_amounts = [
        item for holdings in write.holdings.values() for item in holdings.amounts.items()
    ]
    names_of_kind = {
        "resource providers": {
            *write.providers,
            *write.absent,
            *(uuid for uuid, _ in held_amounts),
        },
        "resource classes": {
            *(name for target in targets for name in target.inventories or ()),
            *(name for _, amounts in held_amounts for name in amounts),
        },
        "traits": {name for target in targets for name in target.traits or ()},
        "aggregates": {uuid for target in targets for uuid in target.aggregates or ()},
    }
    for kind, names in names_of_kind.items():
        if len(names) > limits.NAMES:
            raise _malformed_error(limits.too_many("the body", len(names), kind, limits.NAMES))


def _malformed_error(message: str, *path: str | int) -> errors.BadRequest:
    return errors.BadRequest(
        f"JSON does not validate at {pointer(*path) or 'its top'}: {message}",
        pointer=pointer(*path),
    )
