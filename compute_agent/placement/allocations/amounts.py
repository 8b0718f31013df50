"""Amounts by provider and class, as consumers hold them and requests name them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

Amounts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Provider uuid to resource class to amount."""

MutableAmounts: TypeAlias = dict[str, dict[str, int]]


class Shortfall(NamedTuple):
    """An amount of which there is less than was asked for."""

    provider: str
    resource_class: str
    amount: int
    held_amount: int


def copy_of(amounts: Amounts) -> MutableAmounts:
    """Return the same amounts, to be changed or written as JSON."""
    return {provider: dict(resources) for provider, resources in amounts.items()}


def add(*parts: Amounts) -> MutableAmounts:
    """Return the sum of some amounts."""
    total: MutableAmounts = {}
    for part in parts:
        for provider, resources in part.items():
            own = total.setdefault(provider, {})
            for resource_class, amount in resources.items():
                own[resource_class] = own.get(resource_class, 0) + amount
    return total


def by_class(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of amounts by class, such as those of several providers."""
    return add(*({"": part} for part in parts)).get("", {})


def subtract(amounts: Amounts, part: Amounts) -> MutableAmounts:
    """Return what is left of amounts without a part of them, which they must cover."""
    negative = {
        provider: {resource_class: -amount for resource_class, amount in resources.items()}
        for provider, resources in part.items()
    }
    return without_zeros(add(amounts, negative))


def shortfalls(amounts: Amounts, part: Amounts) -> Iterator[Shortfall]:
    """Yield every amount of a part that is larger than the one of its provider and class."""
    for provider, resources in part.items():
        for resource_class, amount in resources.items():
            available = amounts.get(provider, {}).get(resource_class, 0)
            if available < amount:
                yield Shortfall(provider, resource_class, amount, available)


def covers(amounts: Amounts, part: Amounts) -> bool:
    """Whether amounts have at least every amount of a part, on its provider."""
    return not any(shortfalls(amounts, part))


def without_zeros(amounts: Amounts) -> MutableAmounts:
    """Return amounts without those of 0, and without providers of which nothing is left."""
    positive_amounts = {
        provider: {name: amount for name, amount in resources.items() if amount}
        for provider, resources in amounts.items()
    }
    return {provider: resources for provider, resources in positive_amounts.items() if resources}


def of_record(record: Mapping[str, Any]) -> MutableAmounts:
    """Return what a consumer's record or an allocation request names, nothing if it is empty."""
    return of_entries(record.get("allocations", {}))


def of_entries(entries: Mapping[str, Any]) -> MutableAmounts:
    """Return the amounts of the `allocations` in a body of the API."""
    return {provider: dict(entry["resources"]) for provider, entry in entries.items()}


def as_request(amounts: Amounts) -> dict[str, Any]:
    """Return amounts as `allocations` in a body of the API."""
    return {provider: {"resources": dict(resources)} for provider, resources in amounts.items()}
