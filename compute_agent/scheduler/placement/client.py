"""Client of placement, as the scheduler sees it, made of the client library."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec import Raw

from compute_agent import errors
from compute_agent.placement import responses
from compute_agent.placement.allocations.amounts import as_request, of_record
from compute_agent.placement.answers import Holders, TraitList
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.candidate_answers import CandidateList, Explanation, Room
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.changes import ChangeFeed
from compute_agent.placement.connection import NEWEST, Connection, Retries
from compute_agent.placement.provider_trees import ProviderTrees, WholeTree
from compute_agent.placement.providers import Providers
from compute_agent.placement.responses import NoCapacity
from compute_agent.placement.transports.transport import (
    EXTENSIONS_VERSION,
    Microversion,
    Request,
    Transport,
    version_text,
)
from compute_agent.programs.kept_values import KeptValues
from compute_agent.provider_tree.trait_names import (
    COMPUTE_NODE,
    COMPUTE_STATUS_DISABLED,
    HW_NUMA_ROOT,
    MISC_SHARES_VIA_AGGREGATE,
)
from compute_agent.scheduler.errors import UnknownName
from compute_agent.scheduler.fleet.followed_roots import FollowedRoots, Layout, Roots
from compute_agent.scheduler.placement.holdings import Holding, WantedHolding

_KEPT_SECONDS: Final = 300.0
_NO_PROVIDER: Final = "00000000-0000-4000-8000-000000000000"
_ASKED_ONE_BY_ONE: Final = 8
"""Names up to which each is asked for; beyond, one list of all compute roots is cheaper."""


class ProviderNames:
    """Names of providers, all of them asked for again after some minutes. Safe in several threads.

    They are looked up for a thousand hosts at once, before each claim.
    """

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._names: KeptValues[None, dict[str, str]] = KeptValues(_KEPT_SECONDS)

    def of(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the names by uuid, without providers that do not exist.

        :raises PlacementError: placement cannot be read.
        """
        names = self._names.get(None)
        if names is None:
            names = self._names.keep(None, {})
        unknown_uuids = set(uuids) - names.keys()
        if len(unknown_uuids) > _ASKED_ONE_BY_ONE:
            hosts = self._providers.find(f"required={COMPUTE_NODE}", "Reading the names of hosts")
            names.update((host["uuid"], host["name"]) for host in hosts)
            unknown_uuids -= names.keys()
        for uuid in sorted(unknown_uuids):
            provider = self._providers.get(uuid)
            if provider is not None:
                names[uuid] = provider["name"]
        return {uuid: names[uuid] for uuid in uuids if uuid in names}


LOG = logging.getLogger(__name__)

_UNKNOWN = ("No such trait", "No such resource class")


class PlacementClient:
    """Placement, as the scheduler sees it.  Safe in several threads.

    Every method raises `PlacementUnavailable` when there is no usable answer, and another
    `PlacementError` when placement refuses for a reason that is not named at the method.

    :param transport: how requests reach placement.
    :param use_extensions: use the extensions of the API where placement announces them.
    :param retries: how what failed is repeated, by default as every client of placement does.
    """

    def __init__(
        self,
        transport: Transport,
        retries: Retries | None = None,
        *,
        use_extensions: bool = True,
    ) -> None:
        self._connection = Connection(transport, retries, use_extensions=use_extensions)
        self._placement = PlacementApi(self._connection)
        self._candidates = Candidates(self._connection)
        self._followed_roots = FollowedRoots(
            ChangeFeed(self._connection), self._listed_roots, self._layout_of
        )
        self._provider_names = ProviderNames(self._placement.providers)
        self._supposed_changes: Sequence[Mapping[str, Any]] = ()

    def connect(self) -> None:
        """Ask placement for its versions and for a provider, to know that it can be used.

        :raises PlacementError: it, or its database, cannot.
        """
        self._connection.versions()
        self._placement.providers.get(_NO_PROVIDER)

    @contextmanager
    def errand(self, request_id: str = "") -> Iterator[str]:
        """Let all requests of a block carry one id, a new one unless given; yield it."""
        with self._connection.tracing(request_id or None) as tally:
            yield tally.global_request_id

    def understands_extensions(self) -> bool:
        """Whether questions may use this project's extensions of the API."""
        return self._connection.understands_extensions()

    def allocation_candidates(
        self,
        parameters: Sequence[tuple[str, str]],
        minimum: Microversion,
        *,
        is_extended: bool = False,
    ) -> tuple[CandidateList, Microversion]:
        """Return the answer to a question, and the microversion in which it was asked.

        :param is_extended: the question uses extensions.
        :raises UnknownName: see there.
        """
        version = self._connection.newest(NEWEST)
        if version < minimum:
            raise errors.PlacementTooOld(
                f"The request needs microversion {version_text(minimum)}, placement offers "
                f"{version_text(version)}: upgrade placement."
            )
        if self._supposed_changes:
            query = urlencode(parameters, safe=":,!")
            return self._candidates.candidates_if(self._supposed_changes, query), version
        try:
            return self._candidates.get_allocation_candidates(
                parameters, version, is_extended=is_extended
            )
        except errors.AllocationCandidateRetrievalFailed as error:
            if _names_the_unknown(error):
                unknown = error.detail.rpartition("No such ")[2].rstrip(".")
                raise UnknownName(
                    f"Placement knows no such {unknown}, so no provider can have it: check the "
                    "spelling, or wait for a host that reports it."
                ) from error
            raise

    @contextmanager
    def supposing(self, changes: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """Answer questions in a block about the fleet with changes; not for several threads."""
        self._supposed_changes = changes
        try:
            yield
        finally:
            self._supposed_changes = ()

    def make_room(self, question: Mapping[str, Any]) -> Room:
        """Return placement's plans of moves after which something fits."""
        return self._candidates.make_room(question)

    def explanation(self, parameters: Sequence[tuple[str, str]]) -> Explanation | None:
        """Return placement's explanation of a question, `None` where it has none to give."""
        try:
            return self._candidates.explain(parameters)
        except errors.AllocationCandidateRetrievalFailed as error:
            if _names_the_unknown(error):
                # it explains only what it knows
                return None
            raise

    def is_disabled(self, root: str) -> bool:
        """Return whether the host of a root provider gets nothing new."""
        query = f"in_tree={root}&required={COMPUTE_STATUS_DISABLED}"
        doing = f"Looking whether host {root} is disabled"
        providers = self._placement.providers.find(query, doing, self._connection.newest(NEWEST))
        return any(provider["uuid"] == root for provider in providers)

    def claim(
        self,
        consumer: str,
        allocation_request: Mapping[str, Any],
        *,
        project_id: str,
        user_id: str,
        microversion: Microversion,
        consumer_type: str,
    ) -> NoCapacity | None:
        """Claim for a consumer that has nothing yet; return why not, `None` if it is claimed.

        :raises AllocationUpdateFailed: the consumer holds something else already.
        """
        try:
            return self._placement.allocations.claim_resources(
                consumer,
                allocation_request,
                project_id,
                user_id,
                microversion,
                consumer_type=consumer_type,
            )
        except errors.AllocationUpdateFailed as error:
            return _refusal(error)

    def holding(self, consumer: str) -> Holding:
        """Return what a consumer holds; no allocations if it holds nothing."""
        record = self._placement.allocations.get_allocs_for_consumer(consumer)
        return Holding(of_record(record), record)

    def consumers_on(
        self, root: str, providers: Collection[str], consumers: Collection[str]
    ) -> frozenset[str]:
        """Return those of `consumers` that hold something of the tree of `root`.

        One request where placement shows whole trees; else one for each provider or each consumer,
        whichever are fewer.

        :param providers: those of the tree of which anything can be held.
        """
        if self._connection.understands_extensions():
            try:
                return frozenset(consumers) & self._holders_in_tree(root)
            except errors.PlacementTooOld as error:
                LOG.info("Placement no longer offers whole trees; reading each provider. %s", error)
        if len(consumers) <= len(providers):
            return frozenset(
                consumer
                for consumer in sorted(consumers)
                if not self.holding(consumer).allocations.keys().isdisjoint(providers)
            )
        holders = (
            self._placement.providers.allocations(uuid, f"{uuid} of host {root}")
            for uuid in sorted(providers)
        )
        return frozenset(consumers).intersection(*[set().union(*holders)])

    def _holders_in_tree(self, root: str) -> frozenset[str]:
        request = Request(
            "GET",
            f"/provider_trees/{root}?include=allocations",
            self._connection.newest(NEWEST),
            extensions=EXTENSIONS_VERSION,
            doing=f"Reading what consumers hold on host {root}",
            error=errors.ResourceProviderRetrievalFailed,
        )
        return frozenset(self._connection.read(request, Holders[Raw]).allocations)

    def release(self, consumer: str) -> bool:
        """Give back whatever a consumer holds; return whether it held anything."""
        return self._placement.allocations.delete_allocation(consumer)

    def release_exactly(self, consumer: str, holding: Holding) -> None:
        """Give back a consumer's allocations if nobody changed them since they were read."""
        self._placement.allocations.put_allocations(consumer, {**holding.record, "allocations": {}})

    def exchange(self, wanted_holdings: Mapping[str, WantedHolding]) -> NoCapacity | None:
        """Let every consumer hold what is wanted, all or none; return why not, `None` if done.

        :raises AllocationMoveFailed: one of them was changed since it was read.
        """
        try:
            return self._placement.allocations.write(
                {c: _record(wanted_holding) for c, wanted_holding in wanted_holdings.items()}
            )
        except errors.AllocationMoveFailed as error:
            return _refusal(error)

    def write(self, doing: str, wanted_holdings: Mapping[str, WantedHolding], remedy: str) -> None:
        """Let every consumer hold what is wanted, all or none.

        :param doing: what it is for, and the remedy: sentences of the error.
        :raises AllocationMoveFailed: there is no room for it, or one of them was changed since.
        """
        refusal = self.exchange(wanted_holdings)
        if refusal is not None:
            raise errors.AllocationMoveFailed(
                f"{doing} was refused: placement answered: {refusal.detail} {remedy}"
            )

    def sharing(self, uuids: Collection[str]) -> frozenset[str]:
        """Return those of the providers `uuids` that other trees may use."""
        return frozenset(uuid for uuid in uuids if MISC_SHARES_VIA_AGGREGATE in self._traits(uuid))

    def aggregates(self, uuid: str) -> frozenset[str]:
        """Return the aggregates that a provider is in."""
        return self._placement.providers.aggregates(uuid, uuid).content

    def tree(self, root: str) -> Mapping[str, frozenset[str]]:
        """Return the providers of one tree, each with its traits."""
        return {
            provider["uuid"]: self._traits(provider["uuid"])
            for provider in self._placement.providers.in_tree(root)
        }

    def provider_names(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the names of the providers among `uuids` that exist."""
        return self._provider_names.of(uuids)

    def provider_roots(self, uuids: Collection[str]) -> Mapping[str, str]:
        """Return the root of each of the providers among `uuids` that exist."""
        roots = {}
        for uuid in uuids:
            provider = self._placement.providers.get(uuid)
            if provider is not None:
                roots[uuid] = provider["root_provider_uuid"]
        return roots

    def root_named(self, name: str) -> str | None:
        """Return the uuid of the root provider of this name, None if there is none."""
        provider = self._placement.providers.by_name(name)
        if provider is None or provider["parent_provider_uuid"] is not None:
            return None
        return provider["uuid"]

    def roots_by_layout(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the roots of all hosts, and of those that have NUMA cells."""
        if self._connection.understands_extensions():
            return self._followed_roots.current()
        return self._listed_roots()

    def _listed_roots(self) -> Roots:
        doing = "Listing the hosts"
        hosts = self._placement.providers.find(f"required={COMPUTE_NODE}", doing)
        cells = self._placement.providers.find(f"required={HW_NUMA_ROOT}", doing)
        return (
            frozenset(host["root_provider_uuid"] for host in hosts),
            frozenset(cell["root_provider_uuid"] for cell in cells),
        )

    def _layout_of(self, root: str) -> Layout:
        tree = ProviderTrees(self._connection).read(root)
        providers = tree.providers if isinstance(tree, WholeTree) else ()
        traits = {trait for provider in providers for trait in provider["traits"]}
        if COMPUTE_NODE not in traits:
            return Layout.NO_HOST
        return Layout.NESTED if HW_NUMA_ROOT in traits else Layout.FLAT

    def traits_beginning(self, prefix: str) -> frozenset[str]:
        """Return the traits that placement knows and that begin with `prefix`."""
        path = f"/traits?name=startswith:{quote(prefix)}"
        kind = errors.TraitRetrievalFailed
        request = Request("GET", path, doing="Reading the known traits", error=kind)
        return frozenset(self._connection.read(request, TraitList).traits)

    def _traits(self, uuid: str) -> frozenset[str]:
        return self._placement.providers.traits(uuid, uuid).content


def _names_the_unknown(error: errors.PlacementError) -> bool:
    return error.status == 400 and any(text in error.detail for text in _UNKNOWN)


def _refusal(error: errors.PlacementError) -> NoCapacity:
    """Return the refusal that only concerns the providers of one candidate; raise any other."""
    if responses.is_about_providers(error):
        return NoCapacity(detail=error.detail)
    raise error


def _record(wanted_holding: WantedHolding) -> dict[str, Any]:
    stored_record = wanted_holding.holding.record
    record = {
        "allocations": as_request(wanted_holding.allocations),
        "consumer_generation": stored_record.get("consumer_generation"),
        "project_id": stored_record.get("project_id") or wanted_holding.project_id,
        "user_id": stored_record.get("user_id") or wanted_holding.user_id,
        "consumer_type": wanted_holding.consumer_type,
    }
    if wanted_holding.mappings is not None:
        record["mappings"] = {
            suffix: list(uuids) for suffix, uuids in wanted_holding.mappings.items()
        }
    return record
