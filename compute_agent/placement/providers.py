"""Placement's resource providers: one method per call, each with its own typed failures.

Every method may also raise `PlacementUnavailable` and `PlacementUnauthorized`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement import answers, responses
from compute_agent.placement.answers import HeldByConsumer, RootedProvider, inventory_of
from compute_agent.placement.connection import REPARENT, Connection
from compute_agent.placement.transports.transport import BASE, Microversion, Refusals, Request
from compute_agent.provider_tree import SHARING_TRAIT, PlacementProvider
from compute_agent.provider_tree.inventory import FrozenRecord, Inventory

MAX_LISTED: Final = 200
"""Items in one `in:` list; more make the URL too long for what stands before placement."""

NO_PARENT: Final = "parent provider UUID does not exist"

NOT_FOUND: Final[Refusals] = {404: errors.ResourceProviderNotFound}
WRITE_REFUSALS: Final[Refusals] = {
    **NOT_FOUND,
    responses.CONCURRENT_UPDATE: errors.ResourceProviderUpdateConflict,
    responses.INVENTORY_IN_USE: errors.InventoryInUse,
}

T = TypeVar("T")
A = TypeVar("A", bound=answers.ProviderGeneration)


class AtGeneration(Struct, Generic[T], frozen=True):
    """Something read from or written to a provider, and the provider's generation then."""

    generation: int
    content: T


class Providers:
    """The provider calls over one connection."""

    def __init__(self, connection: Connection, max_listed: int = MAX_LISTED) -> None:
        self._connection = connection
        self._max_listed = max_listed

    # -- reading -----------------------------------------------------------------------------

    def in_tree(self, uuid: str) -> list[PlacementProvider]:
        """All providers of the tree that `uuid` is a member of; empty when it is unknown."""
        return self._list(f"in_tree={uuid}", f"Reading the provider tree of {uuid}")

    def find(self, query: str, doing: str, version: Microversion = BASE) -> list[RootedProvider]:
        """List the providers that a query finds, each with the root of its tree.

        :param query: quoted, without its question mark; empty: all.
        :param version: that the query needs.
        """
        request = _listing(query, doing, version)
        listing = self._connection.read(request, answers.ProviderList[RootedProvider])
        return listing.resource_providers

    def by_name(self, name: str) -> PlacementProvider | None:
        """Return the provider of this name, None when there is none."""
        if not name:
            # placement takes an empty name for no condition, and returns all providers
            return None
        providers = self._list(
            f"name={quote(name, safe='')}", f"Looking for a provider named {name}"
        )
        return providers[0] if providers else None

    def get(self, uuid: str) -> RootedProvider | None:
        """Return the provider of this uuid, None when placement has none."""
        request = Request(
            "GET",
            f"/resource_providers/{uuid}",
            doing=f"Reading provider {uuid}",
            error=errors.ResourceProviderRetrievalFailed,
            refusals=NOT_FOUND,
        )
        try:
            return self._connection.read(request, RootedProvider)
        except errors.ResourceProviderNotFound:
            return None

    def sharing(self, aggregates: Collection[str]) -> list[PlacementProvider]:
        """Return the providers that share their inventory through any of these aggregates."""
        by_uuid: dict[str, PlacementProvider] = {}
        for some in _batches(sorted(aggregates), self._max_listed):
            query = f"member_of=in:{','.join(some)}&required={SHARING_TRAIT}"
            doing = f"Looking for sharing providers in {len(some)} aggregate(s)"
            for provider in self._list(query, doing):
                by_uuid[provider["uuid"]] = provider
        return list(by_uuid.values())

    def inventories(self, uuid: str, name: str) -> AtGeneration[FrozenRecord]:
        kind = errors.ResourceProviderInventoryRetrievalFailed
        read = self._read(uuid, name, "inventories", kind, answers.InventoriesOfProvider)
        return AtGeneration(read.resource_provider_generation, inventory_of(read.inventories))

    def traits(self, uuid: str, name: str) -> AtGeneration[frozenset[str]]:
        kind = errors.ResourceProviderTraitRetrievalFailed
        read = self._read(uuid, name, "traits", kind, answers.TraitsOfProvider)
        return AtGeneration(read.resource_provider_generation, frozenset(read.traits))

    def aggregates(self, uuid: str, name: str) -> AtGeneration[frozenset[str]]:
        kind = errors.ResourceProviderAggregateRetrievalFailed
        read = self._read(uuid, name, "aggregates", kind, answers.AggregatesOfProvider)
        return AtGeneration(read.resource_provider_generation, frozenset(read.aggregates))

    def allocations(self, uuid: str, name: str) -> dict[str, HeldByConsumer]:
        """Return consumer uuid -> `resources` and `consumer_generation` on this provider."""
        request = Request(
            "GET",
            _path(uuid, "allocations"),
            doing=f"Reading the allocations on {name} ({uuid})",
            error=errors.ResourceProviderAllocationRetrievalFailed,
        )
        return self._connection.read(request, answers.Holders[HeldByConsumer]).allocations

    # -- writing -----------------------------------------------------------------------------

    def create(self, uuid: str, name: str, parent_uuid: str | None) -> AtGeneration[bool]:
        """Create a provider; `content` is whether it was not there before.

        A lost answer is looked up, never asked again blindly.

        :raises errors.ResourceProviderCreationFailed: the name belongs to another provider
            (`name_conflict_uuid`), the uuid to one that is elsewhere, or the request was refused.
        :raises errors.ResourceProviderNotFound: the parent is gone.
        """
        body: dict[str, Any] = {"uuid": uuid, "name": name}
        if parent_uuid is not None:
            body["parent_provider_uuid"] = parent_uuid
        kind = errors.ResourceProviderCreationFailed
        request = Request(
            "POST",
            "/resource_providers",
            json=body,
            doing=f"Creating provider {name} ({uuid})",
            error=kind,
        )

        def attempt() -> AtGeneration[bool]:
            try:
                response = self._connection.call(request)
            except errors.PlacementUnavailable:
                existing_provider = self.get(uuid)
                if existing_provider is None:
                    raise
                return self._adopt(existing_provider, name, parent_uuid, request.doing)
            if response.status == 409:
                existing_provider = self.get(uuid)
                if existing_provider is None:
                    failure = responses.failure(kind, request, response)
                    self._name_holder(failure, name)
                    raise failure
                return self._adopt(existing_provider, name, parent_uuid, request.doing)
            if response.status == 400 and NO_PARENT in responses.explanation(response):
                raise responses.failure(errors.ResourceProviderNotFound, request, response)
            if response.status not in (200, 201):
                raise responses.failure(kind, request, response)
            new_provider = responses.body_of(request, response, PlacementProvider)
            return AtGeneration(new_provider["generation"], True)

        return self._connection.retries.while_unavailable(attempt)

    def put(self, uuid: str, name: str, parent_uuid: str | None, *, reparents: bool) -> None:
        """Rename, and move below another parent when `reparents`.

        :raises errors.PlacementTooOld: moving needs 1.37.
        :raises errors.ResourceProviderUpdateFailed: refused; `name_conflict_uuid` if taken.
        """
        body: dict[str, Any] = {"name": name}
        if reparents:
            body["parent_provider_uuid"] = parent_uuid
        request = Request(
            "PUT",
            f"/resource_providers/{uuid}",
            REPARENT if reparents else BASE,
            body,
            doing=f"Updating provider {name} ({uuid})",
            error=errors.ResourceProviderUpdateFailed,
            refusals=WRITE_REFUSALS,
        )
        try:
            self._connection.read(request, PlacementProvider)
        except errors.ResourceProviderUpdateFailed as failure:
            if failure.code == responses.DUPLICATE_NAME:
                self._name_holder(failure, name)
            raise

    def delete(self, uuid: str, name: str) -> None:
        """Delete a provider; one that is not there is not an error.

        :raises errors.ResourceProviderInUse: it has allocations or children.
        """
        request = Request(
            "DELETE",
            f"/resource_providers/{uuid}",
            doing=f"Deleting provider {name} ({uuid})",
            good=(204, 404),
            error=errors.ResourceProviderDeletionFailed,
            refusals={409: errors.ResourceProviderInUse},
        )
        self._connection.call(request)

    def put_inventories(
        self, uuid: str, name: str, generation: int, inventory: Inventory
    ) -> AtGeneration[None]:
        """Replace a provider's inventories.

        :raises errors.ResourceProviderUpdateConflict: the generation moved.
        :raises errors.InventoryInUse: a class that would go has allocations.
        :raises errors.InvalidInventory: a record or class is refused.
        """
        body = inventory_body(generation, inventory)
        return self._write(uuid, name, "inventories", body, errors.InvalidInventory)

    def put_traits(
        self, uuid: str, name: str, generation: int, traits: Iterable[str]
    ) -> AtGeneration[None]:
        """Replace a provider's traits.

        :raises errors.ResourceProviderUpdateConflict: the generation moved.
        :raises errors.TraitCreationFailed: placement does not know a trait.
        """
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        return self._write(uuid, name, "traits", body, errors.TraitCreationFailed)

    def put_aggregates(
        self, uuid: str, name: str, generation: int, aggregates: Iterable[str]
    ) -> AtGeneration[None]:
        """Replace a provider's aggregates.

        :raises errors.ResourceProviderUpdateConflict: the generation moved.
        """
        body = {"resource_provider_generation": generation, "aggregates": sorted(aggregates)}
        return self._write(uuid, name, "aggregates", body, errors.ResourceProviderUpdateFailed)

    # -- names -------------------------------------------------------------------------------

    def known_traits(self, names: Collection[str]) -> set[str]:
        """Return those of `names` that placement knows."""
        known_names: set[str] = set()
        for some in _batches(sorted(names), self._max_listed):
            quoted_names = ",".join(quote(name, safe="") for name in some)
            request = Request(
                "GET",
                f"/traits?name=in:{quoted_names}",
                doing="Asking which traits exist",
                error=errors.TraitRetrievalFailed,
            )
            known_names.update(self._connection.read(request, answers.TraitList).traits)
        return known_names

    def create_trait(self, name: str) -> None:
        """Create a trait, unless it exists.

        :raises errors.TraitCreationFailed: placement refuses the name.
        """
        self._create_name(
            f"/traits/{quote(name, safe='')}", f"Creating trait {name}", errors.TraitCreationFailed
        )

    def create_resource_class(self, name: str) -> None:
        """Create a custom resource class, unless it exists.

        :raises errors.InvalidResourceClass: placement refuses the name.
        """
        self._create_name(
            f"/resource_classes/{quote(name, safe='')}",
            f"Creating resource class {name}",
            errors.InvalidResourceClass,
        )

    # -- inside ------------------------------------------------------------------------------

    def _create_name(self, path: str, doing: str, kind: type[errors.PlacementError]) -> None:
        request = Request("PUT", path, doing=doing, error=kind)
        response = self._connection.call(request)
        if response.status in (201, 204):
            return
        if response.status < 300:
            # not placement's: it answers with one of those two where the name exists now
            raise responses.malformed(request, response, "an empty 201 or 204")
        raise responses.failure(kind, request, response)

    def _list(self, query: str, doing: str) -> list[PlacementProvider]:
        request = _listing(query, doing, BASE)
        listing = self._connection.read(request, answers.ProviderList[PlacementProvider])
        return listing.resource_providers

    def _read(
        self,
        uuid: str,
        name: str,
        aspect: str,
        error: type[errors.PlacementError],
        kind: type[A],
    ) -> A:
        request = Request(
            "GET",
            _path(uuid, aspect),
            doing=f"Reading the {aspect} of {name} ({uuid})",
            error=error,
            refusals=NOT_FOUND,
        )
        return self._connection.read(request, kind)

    def _write(
        self, uuid: str, name: str, aspect: str, body: object, kind: type[errors.PlacementError]
    ) -> AtGeneration[None]:
        request = Request(
            "PUT",
            _path(uuid, aspect),
            json=body,
            doing=f"Replacing the {aspect} of {name} ({uuid})",
            error=kind,
            refusals=WRITE_REFUSALS,
            good=(200,),
        )
        response = self._connection.call(request)
        answer = responses.body_of(request, response, answers.ProviderGeneration)
        return AtGeneration(answer.resource_provider_generation, None)

    def _adopt(
        self, provider: PlacementProvider, name: str, parent_uuid: str | None, doing: str
    ) -> AtGeneration[bool]:
        if provider["name"] == name and provider.get("parent_provider_uuid") == parent_uuid:
            return AtGeneration(provider["generation"], False)
        raise errors.ResourceProviderCreationFailed(
            f"{doing} under {parent_uuid} failed: placement has a provider of this uuid, named "
            f"{provider['name']}, under {provider.get('parent_provider_uuid')}. Rename or move it "
            "there, or delete it if it has no allocations"
        )

    def _name_holder(self, failure: errors.ResourceProviderUpdateFailed, name: str) -> None:
        """Add to a failure which provider has the name, if there is one."""
        holder = self.by_name(name)
        if holder is not None:
            failure.name_conflict_uuid = holder["uuid"]
            failure.add_note(f"The name belongs to provider {holder['uuid']}.")


def inventory_body(generation: int, inventory: Inventory) -> dict[str, Any]:
    """Return a whole inventory as PUT inventories and the reshaper take it."""
    return {
        "resource_provider_generation": generation,
        "inventories": {rc: dict(record) for rc, record in inventory.items()},
    }


def _listing(query: str, doing: str, version: Microversion) -> Request:
    return Request(
        "GET",
        f"/resource_providers?{query}" if query else "/resource_providers",
        version,
        doing=doing,
        error=errors.ResourceProviderRetrievalFailed,
    )


def _path(uuid: str, aspect: str) -> str:
    return f"/resource_providers/{uuid}/{aspect}"


def _batches(items: list[str], size: int) -> Iterable[list[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
