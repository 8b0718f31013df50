"""One resource provider as an immutable value, and the rules for its name and uuid."""

from __future__ import annotations

import hashlib
import uuid as uuidlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypedDict

from msgspec import Struct

from compute_agent.programs.decoding import Whole
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory
from compute_agent.provider_tree.trait_names import MISC_SHARES_VIA_AGGREGATE

SHARING_TRAIT: Final = MISC_SHARES_VIA_AGGREGATE
MAX_NAME: Final = 200

ASPECTS: Final = ("inventories", "aggregates", "traits")
"""Parts that are read and replaced separately, each under the provider's one generation."""


UNMANAGED: Final = "unmanaged"
"""Metadata of a named unit of a device with `managed: no`."""


class Resource(Struct, frozen=True):
    """One named unit behind a count, such as a pmem namespace.  Never sent to placement."""

    provider_uuid: str
    resource_class: str
    identifier: str
    metadata: Any = None


class ProviderData(Struct, frozen=True):
    """One provider as it was when asked for.

    `generation` is `None` when it was created here and is not yet in placement;
    `parent_uuid` is `None` for a root.
    `inventory` maps class to record (six keys); it cannot be changed, `copy.deepcopy` it to
    edit.
    """

    uuid: str
    name: str
    generation: int | None = None
    parent_uuid: str | None = None
    inventory: Inventory = FrozenRecord()
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    resources: Mapping[str, frozenset[Resource]] = FrozenRecord()

    def __deepcopy__(self, memo: dict[int, Any]) -> ProviderData:
        return self


class PlacementProvider(TypedDict):
    """The keys read from a provider as `GET /resource_providers` returns it."""

    uuid: str
    name: str
    generation: Whole
    parent_provider_uuid: str | None


def child_uuid(root_uuid: str, stable_key: str) -> str:
    """Return the uuid a child of this root always has, also after it was lost in placement.

    :param stable_key: the strongest identity the hardware gives (serial, permanent MAC, PCI
        address, `numa:<id>` ...), never the host's name, which may change.
    """
    return str(uuidlib.uuid5(uuidlib.UUID(root_uuid), stable_key))


def provider_name(full_name: str) -> str:
    """Return `full_name`; a too long one is cut and ends in ~ and digits of its SHA-256."""
    if len(full_name) <= MAX_NAME:
        return full_name
    digest = hashlib.sha256(full_name.encode()).hexdigest()[:8]
    return f"{full_name[: MAX_NAME - 9]}~{digest}"


def canonical(uuid: str) -> str:
    """Return `uuid` in lower case with dashes.

    :raises ValueError: it is not a uuid.
    """
    try:
        return str(uuidlib.UUID(uuid))
    except (ValueError, AttributeError, TypeError) as exc:
        raise ValueError(f"not a uuid: {uuid!r}") from exc


def frozen_resources(resources: Mapping[str, Iterable[Resource]]) -> FrozenRecord:
    """Return named units per class as a value."""
    if not resources:
        return FrozenRecord()
    return FrozenRecord({rc: frozenset(units) for rc, units in resources.items()})


def parents_first(
    providers: Mapping[str, ProviderData], known_uuids: Collection[str]
) -> Iterator[ProviderData]:
    """Yield parents before children; known siblings keep their order, new ones follow by name.

    Placement's answer has no order, and the order here decides the order of requests.

    :raises ValueError: parents that are missing (all are named), or that form a loop.
    """
    missing_parents = {
        provider.parent_uuid
        for provider in providers.values()
        if provider.parent_uuid is not None and provider.parent_uuid not in providers
    }
    if missing_parents:
        raise ValueError(f"parents that are not known: {', '.join(sorted(missing_parents))}")
    children: dict[str | None, list[ProviderData]] = {}
    new_providers = [provider for uuid, provider in providers.items() if uuid not in known_uuids]
    new_providers.sort(key=lambda provider: (provider.name, provider.uuid))
    for provider in (*(p for u, p in providers.items() if u in known_uuids), *new_providers):
        children.setdefault(provider.parent_uuid, []).append(provider)
    yielded_count = 0
    next_providers = list(reversed(children.get(None, [])))
    while next_providers:
        provider = next_providers.pop()
        yielded_count += 1
        yield provider
        next_providers.extend(reversed(children.get(provider.uuid, [])))
    if yielded_count != len(providers):
        raise ValueError("the parents of the providers given form a loop")
