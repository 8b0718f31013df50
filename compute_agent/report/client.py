"""The report client, which reads and writes provider trees in placement.

The module has no state; callers share one object.  Safe in several threads; passes over one tree
are to be serialised by the caller.
"""

from __future__ import annotations

import copy
import os
import random as randomlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

from compute_agent import errors
from compute_agent.placement.api import PlacementApi
from compute_agent.placement.connection import Clock, Connection, OfferedVersions, Retries, Tally
from compute_agent.placement.providers import MAX_LISTED
from compute_agent.placement.traits_and_classes import Names
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.placement.transports.transport import Transport
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_tree import PlacementProvider, ProviderData, ProviderTree
from compute_agent.provider_tree.trait_names import OWNER_NOVA
from compute_agent.report.cache import TreeCache, TreeCaches
from compute_agent.report.flush import Flush, FlushReport, log_kept
from compute_agent.report.plan import plan
from compute_agent.report.provider_writes import ProviderWrites, remove_tree
from compute_agent.report.reshape import Reshaper
from compute_agent.report.steps import KeepProvider, SetInventories, Step
from compute_agent.report.tree_reader import TreeReader

Consumers = dict[str, dict[str, Any]]


class ReportClient:
    """A client that reads and writes trees, and writes allocations.

    :ivar placement: the single steps of placement, over the same connection.
    :param cache_path: file of the cache that survives a restart, if any.
    :param connections: maximum of requests at the same time.
    :param association_refresh: seconds between re-readings of what may have changed unseen; 0:
        never. May be set at any time.
    :param max_listed: uuids in one question about sharing providers.
    :param bulk_inventories: write many inventories with one request where the user may reshape.
    :param use_extensions: read whole trees with one request where placement has that.
    :param on_request: called with method and status (`None` without answer) of every request, and
        the offset of the clock.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        cache_path: str | os.PathLike[str] | None = None,
        connections: int = 4,
        association_refresh: float = 300,
        max_listed: int = MAX_LISTED,
        bulk_inventories: bool = True,
        use_extensions: bool = False,
        on_request: Callable[[str, int | None, float | None], None] | None = None,
        clock: Clock | None = None,
        random: randomlib.Random | None = None,
    ) -> None:
        retries = Retries(clock or Clock(), random or randomlib.Random())
        connection = Connection(transport, retries, on_request, use_extensions=use_extensions)
        self.association_refresh = association_refresh
        self._bulk_inventories = bulk_inventories
        self._workers = RequestPool(connections)
        self._retries = retries
        self.placement = PlacementApi(connection, max_listed=max_listed)
        providers = self.placement.providers
        self.names = Names(providers)
        trees = self.placement.trees
        self._reader = TreeReader(
            providers, trees, self._workers, retries, lambda: self.association_refresh
        )
        self._reshaper = Reshaper(connection, providers, self._reader, self._workers)
        self._caches = TreeCaches(cache_path, retries.clock)
        self._created_uuids: set[str] = set()
        self._conditions = LastingConditions()

    def connect(self) -> OfferedVersions:
        """Ask placement for the versions it offers, and return them.

        :raises errors.PlacementTooOld: it cannot reshape.
        """
        return self.placement.connection.versions()

    def reconnect(self) -> OfferedVersions:
        """Ask again as `connect` does, always with one request, as after an outage."""
        return self.placement.connection.ask_again()

    @property
    def offered_versions(self) -> OfferedVersions | None:
        """Versions from `connect`, `None` once placement could not be reached; no request."""
        return self.placement.connection.known_versions

    def tracing(self, global_request_id: str | None = None) -> AbstractContextManager[Tally]:
        """Give requests made inside one global request id, and count them together."""
        return self.placement.connection.tracing(global_request_id)

    def close(self) -> None:
        """Write the pending part of the cache, and end the threads."""
        self._caches.close()
        self._workers.close()

    def drop_cache(self, root_uuid: str | None = None) -> None:
        """Forget one tree, or all: everything is read again."""
        self._caches.drop(root_uuid)

    def written_elsewhere(self, root_uuid: str) -> None:
        """Record that another writer changed the tree: the next read takes in what is new."""
        cache = self._caches.get(root_uuid)
        if cache is not None:
            cache.written_elsewhere, cache.reads_since_sharing = True, 1

    def show_life(self, root_uuid: str) -> None:
        """Let placement hear from the agent of this tree where a pass ended before it was read."""
        trees, cache = self.placement.trees, self._caches.get(root_uuid)
        if trees.is_offered:
            etag = None if cache is None else cache.etag
            trees.read(root_uuid, etag=etag, is_for_report=True)

    def known_tree(self, root_uuid: str) -> ProviderTree | None:
        """Return the tree as last read or written, if it ever was; no request."""
        cache = self._caches.get(root_uuid)
        return cache.tree.snapshot() if cache is not None else None

    def get_provider_tree(self, root_uuid: str, *, fresh: bool = False) -> ProviderTree:
        """Return the tree of this root from placement, with the sharing providers that reach it.

        Without a root in placement it holds no tree of that root.  In a quiet state one request.

        :param fresh: read also what may have changed unseen, as a reshape needs it.
        """
        cache = self._caches.of(root_uuid)
        known_tree = cache.tree if cache.is_known else None
        self._reader.read(cache, fresh=fresh)
        tally = self.placement.connection.tally
        cache.probed_by = tally.global_request_id if tally else None
        if cache.tree is not known_tree:
            self.names.learn(cache.tree)
        self._caches.save_if_changed()
        return cache.tree.snapshot()

    def get_provider_tree_and_ensure_root(
        self, root_uuid: str, name: str, *, fresh: bool = False
    ) -> ProviderTree:
        """Return the tree as `get_provider_tree` does, creating a missing root.

        A root that placement has under another name is returned as it is.

        :raises errors.ResourceProviderCreationFailed: the name belongs to another provider
            (`name_conflict_uuid`).
        """
        tree = self.get_provider_tree(root_uuid, fresh=fresh)
        if tree.exists(root_uuid):
            return tree
        cache = self._caches.of(root_uuid)
        with cache.lock:
            creation = self.placement.providers.create(root_uuid, name, None)
            if creation.content:
                cache.tree.new_root(name, root_uuid, creation.generation)
                cache.dirty = True
            else:
                self._reader.read(cache)
        self._created_uuids.add(root_uuid)
        self._caches.save_if_changed()
        return cache.tree.snapshot()

    def plan(
        self,
        base: ProviderTree,
        new_tree: ProviderTree,
        allocations: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        is_ours: Callable[[str], bool] | None = None,
        original_allocations: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Step]:
        """Return the steps of `update_from_provider_tree`; no request."""

        def is_owned(provider: ProviderData) -> bool:
            if is_ours is not None:
                return is_ours(provider.uuid)
            return OWNER_NOVA in provider.traits or provider.uuid in self._created_uuids

        return plan(
            base,
            self.names.accepted_tree(new_tree),
            is_owned=is_owned,
            allocations=allocations,
            original_allocations=original_allocations,
            bulk=self._bulk_inventories and self._reshaper.is_allowed,
            known_traits=self.names.known_traits,
            known_classes=self.names.known_classes,
        )

    def update_from_provider_tree(
        self,
        base: ProviderTree,
        new_tree: ProviderTree,
        allocations: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        is_ours: Callable[[str], bool] | None = None,
        original_allocations: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> FlushReport:
        """Update placement from `base` to `new_tree`; without a difference no request.

        :param base: the tree as it was read for this pass.
        :param allocations: given for a reshape: consumer uuid -> record as it shall be.
        :param is_ours: whether a provider may be deleted (by uuid); by default one that has the
            owner trait or was created by this process.
        :param original_allocations: the allocations as they were read. Without them, consumers are
            part of the reshape when they hold a class whose inventory changes; with them those
            whose record differs.
        :raises errors.PlacementError: see `Flush.run`.
        """
        steps = self.plan(
            base, new_tree, allocations, is_ours=is_ours, original_allocations=original_allocations
        )
        if not steps:
            return FlushReport()
        cache = self._caches.of(self._root_of(base, new_tree))
        with cache.lock:
            if not cache.is_known:
                cache.tree, cache.is_known = base.snapshot(), True
            report = FlushReport()
            try:
                self._flush(cache, steps, report)
            finally:
                self._created_uuids.update(report.created_uuids)
                log_kept(report, self._conditions)
                self._caches.save_if_changed()
        return report

    def _flush(self, cache: TreeCache, steps: Sequence[Step], report: FlushReport) -> None:
        writes = [step for step in steps if not isinstance(step, KeepProvider)]
        is_single = len(writes) == 1 and not isinstance(writes[0], SetInventories)
        if cache.generations_unseen and writes and not is_single:
            # a single write finds out by its conflict
            cache.etag = None
            self._reader.read(cache)
        if writes:
            cache.dirty, cache.etag, cache.allocations = True, None, None
        providers = self.placement.providers
        flush = Flush(
            root_uuid=cache.root_uuid,
            live=cache.tree,
            providers=providers,
            names=self.names,
            writes=ProviderWrites(cache.tree, providers, self.names, self._reader, self._retries),
            reshaper=self._reshaper,
            workers=self._workers,
            report=report,
        )
        flush.run(steps)

    def allocations_with_tree(self, root_uuid: str) -> Consumers | None:
        """Return the consumers of a tree where they were just read with it, else None; no request.

        `get_provider_tree(root_uuid, fresh=True)` reads them where that is possible.
        """
        allocations = self._caches.of(root_uuid).allocations
        return copy.deepcopy(dict(allocations)) if allocations is not None else None

    def get_allocations_for_provider_tree(self, root_uuid: str) -> Consumers:
        """Return the consumers with allocations on this root's tree, with all their allocations.

        No request where they were read with the tree for this pass.  A consumer with allocations
        on sharing providers only is left out, and nothing of it moves.

        :raises errors.ResourceProviderAllocationRetrievalFailed: a provider's could not be read.
        :raises errors.ConsumerAllocationRetrievalFailed: a consumer's could not be read.
        """
        cache = self._caches.of(root_uuid)
        tally, along = self.placement.connection.tally, self.placement.trees.is_offered
        is_probed = tally is not None and cache.probed_by == tally.global_request_id
        if not is_probed or (along and cache.allocations is None):
            self._reader.read(cache, fresh=along)
        if not cache.tree.exists(root_uuid):
            raise errors.ResourceProviderAllocationRetrievalFailed(
                f"Reading the allocations on the tree of {root_uuid} failed: no such provider"
            )
        allocations = self.allocations_with_tree(root_uuid)
        if allocations is not None:
            return allocations
        members = [cache.tree.data(u) for u in cache.tree.get_provider_uuids_in_tree(root_uuid)]
        per_provider = self._workers.results(
            [partial(self.placement.providers.allocations, p.uuid, p.name) for p in members]
        )
        consumers = list(dict.fromkeys(c for holders in per_provider for c in holders))
        records = self._workers.results(
            [
                partial(self.placement.allocations.get_allocs_for_consumer, consumer)
                for consumer in consumers
            ]
        )
        return {
            consumer: record
            for consumer, record in zip(consumers, records, strict=True)
            if record["allocations"]
        }

    def find_provider_by_name(self, name: str) -> ProviderData | None:
        """Return a provider with its inventory, traits and aggregates, if it exists."""
        provider = self.placement.providers.by_name(name)
        return self._with_associations(provider) if provider is not None else None

    def find_provider(self, uuid: str) -> ProviderData | None:
        """Return a provider as `find_provider_by_name` does, by uuid."""
        provider = self.placement.providers.get(uuid)
        return self._with_associations(provider) if provider is not None else None

    def get_allocations_for_provider(self, uuid: str) -> Consumers:
        """Return `resources` and `consumer_generation` on one provider, by consumer uuid."""
        return cast(Consumers, self.placement.providers.allocations(uuid, uuid))

    def change_traits(
        self, uuid: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Add and remove traits of one provider with one read and one write; those of others stay.

        :raises errors.ResourceProviderUpdateFailed: it could not be written.
        """
        stored_traits = self.placement.providers.traits(uuid, uuid)
        new_traits = (stored_traits.content | frozenset(add)) - frozenset(remove)
        if new_traits == stored_traits.content:
            return
        answer = self.placement.providers.put_traits(
            uuid, uuid, stored_traits.generation, new_traits
        )
        for cache in self._caches.all():
            if (
                cache.tree.exists(uuid)
                and cache.tree.data(uuid).generation == stored_traits.generation
            ):
                cache.dirty, cache.etag = True, None
                cache.tree.update_traits(uuid, new_traits, answer.generation)

    def change_aggregates(
        self, uuid: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Add and remove aggregates of one provider; those of others stay.

        :raises errors.ResourceProviderUpdateFailed: it could not be written.
        """

        def attempt() -> None:
            stored_aggregates = self.placement.providers.aggregates(uuid, uuid)
            new_aggregates = (stored_aggregates.content | frozenset(add)) - frozenset(remove)
            if new_aggregates != stored_aggregates.content:
                self.placement.providers.put_aggregates(
                    uuid, uuid, stored_aggregates.generation, new_aggregates
                )

        self._retries.while_conflicting(attempt)

    def delete_resource_provider(self, root_uuid: str, cascade: bool = False) -> None:
        """Delete a tree, leaf first.

        :param cascade: remove all allocations on its providers before.
        :raises errors.ResourceProviderInUse: a provider has allocations.
        """
        remove_tree(self.placement, root_uuid, with_allocations=cascade)
        self.drop_cache(root_uuid)

    def _root_of(self, base: ProviderTree, new_tree: ProviderTree) -> str:
        """Return the node's own root, which was read: others of the two trees share with it."""
        roots = [root.uuid for root in (*new_tree.roots, *base.roots)]
        return next(filter(self._caches.__contains__, roots), roots[0])

    def _with_associations(self, provider: PlacementProvider) -> ProviderData:
        uuid, name = provider["uuid"], provider["name"]
        return ProviderData(
            uuid,
            name,
            provider["generation"],
            provider.get("parent_provider_uuid"),
            self.placement.providers.inventories(uuid, name).content,
            self.placement.providers.traits(uuid, name).content,
            self.placement.providers.aggregates(uuid, name).content,
        )
