"""The report client: the only part of the agent and the scheduler that speaks to placement.

It is an object its owner hands to whoever needs it; there is no module state.  Safe in several
threads; passes over one tree are to be serialised by the caller.
"""

from __future__ import annotations

import logging
import os
import random as randomlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from compute_agent import errors
from compute_agent.placement.allocations import Allocations
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.connection import Connection, OfferedVersions, Tally
from compute_agent.placement.providers import MAX_LISTED, Providers
from compute_agent.placement.request_pool import Workers
from compute_agent.placement.retries import Clock, Retries, SystemClock
from compute_agent.placement.traits_and_classes import Names
from compute_agent.placement.transport import Transport
from compute_agent.provider_tree import SHARING_TRAIT, PlacementProvider, ProviderData, ProviderTree
from compute_agent.provider_tree.trait_names import OWNER_NOVA
from compute_agent.report.cache import CacheFile, TreeCache
from compute_agent.report.flush import Flush, FlushReport
from compute_agent.report.operations import (
    DeleteProvider,
    KeepProvider,
    Operation,
    SetAggregates,
)
from compute_agent.report.plan import plan
from compute_agent.report.provider_writes import ProviderWrites
from compute_agent.report.reshape import Reshaper
from compute_agent.report.tree_reader import TreeReader

LOG = logging.getLogger(__name__)


Consumers = dict[str, dict[str, Any]]


class ReportClient(Allocations, Candidates):
    """Reads trees from placement, brings placement to wanted trees, and writes allocations.

    :param cache_path: the file in which what is known of placement survives a restart; None: none.
    :param connections: requests at the same time, at most.
    :param association_refresh: seconds between re-readings of what may have changed unseen; 0:
        never. May be set at any time.
    :param max_listed: uuids in one question about sharing providers.
    :param bulk_inventories: write many inventories with one request where the user may reshape.
    :param on_request: told method, path and status (None: no answer) of every request.
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
        on_request: Callable[[str, str, int | None], None] | None = None,
        clock: Clock | None = None,
        random: randomlib.Random | None = None,
    ) -> None:
        retries = Retries(clock or SystemClock(), random or randomlib.Random())
        connection = Connection(transport, retries, on_request)
        self.association_refresh = association_refresh
        self._bulk_inventories = bulk_inventories
        self._workers = Workers(connections)
        self._retries = retries
        providers = Providers(connection, max_listed)
        Allocations.__init__(self, connection, providers)
        self.names = Names(providers)
        self._reader = TreeReader(
            providers, self._workers, retries, lambda: self.association_refresh
        )
        self._reshaper = Reshaper(connection, providers, self._reader, self._workers)
        self._lock = threading.Lock()
        self._caches: dict[str, TreeCache] = {}
        self._created: set[str] = set()
        self._kept: dict[str, str] = {}
        self._file = CacheFile(cache_path, retries.clock) if cache_path is not None else None
        if self._file is not None:
            for root, tree in self._file.load().items():
                self._caches[root] = TreeCache(root, tree, hint=True)

    # -- the conversation --------------------------------------------------------------------

    def connect(self) -> OfferedVersions:
        """Ask placement for its versions; what it offers.

        :raises errors.PlacementTooOld: it cannot reshape.
        """
        return self._connection.versions()

    def reconnect(self) -> OfferedVersions:
        """As :meth:`connect`, and always one request: after an outage, whether it is over."""
        return self._connection.ask_again()

    @property
    def offered(self) -> OfferedVersions | None:
        """What placement said to :meth:`connect`, None once it could not be reached; no request."""
        return self._connection.known_versions

    def tracing(self, global_request_id: str | None = None) -> AbstractContextManager[Tally]:
        """Requests made inside carry one global request id and are counted together."""
        return self._connection.tracing(global_request_id)

    @property
    def total(self) -> Tally:
        """Counts of every request this client made."""
        return self._connection.total

    @property
    def created_uuids(self) -> frozenset[str]:
        """Providers this process created, also those of a flush that failed afterwards."""
        return frozenset(self._created)

    @property
    def refused_names(self) -> frozenset[str]:
        """Traits and resource classes left out because placement does not take them."""
        return self.names.refused

    def close(self) -> None:
        """Write what is unwritten of the cache and end the threads."""
        if self._file is not None and self._file.pending:
            self._save(now=True)
        self._workers.close()

    def drop_cache(self, root_uuid: str | None = None) -> None:
        """Forget what is known of one tree, or of all: everything is read anew."""
        with self._lock:
            for root in [root_uuid] if root_uuid else list(self._caches):
                self._caches.pop(root, None)

    # -- trees -------------------------------------------------------------------------------

    def known_tree(self, root_uuid: str) -> ProviderTree | None:
        """The tree as it was when it was last read or written; no request.  None: it never was."""
        with self._lock:
            cache = self._caches.get(root_uuid)
        return cache.tree.snapshot() if cache is not None else None

    def get_provider_tree(self, root_uuid: str, *, fresh: bool = False) -> ProviderTree:
        """The tree of this root as placement has it, with the sharing providers that reach it.

        Without a root in placement it holds no tree of that root.  In a quiet state one request.

        :param fresh: read also what may have changed unseen (what a reshape must stand on).
        """
        cache = self._cache(root_uuid)
        self._reader.read(cache, fresh=fresh)
        tally = self._connection.tally
        cache.probed_by = tally.global_request_id if tally else None
        self.names.learn(cache.tree)
        self._save_if_changed()
        return cache.tree.snapshot()

    def get_provider_tree_and_ensure_root(
        self, root_uuid: str, name: str, *, fresh: bool = False
    ) -> ProviderTree:
        """As :meth:`get_provider_tree`, with the root created if placement has none.

        A root that placement knows under another name is returned as it is.

        :raises errors.ResourceProviderCreationFailed: the name belongs to another provider
            (``name_conflict_uuid``).
        """
        tree = self.get_provider_tree(root_uuid, fresh=fresh)
        if tree.exists(root_uuid):
            return tree
        cache = self._cache(root_uuid)
        with cache.lock:
            made = self.providers.create(root_uuid, name, None)
            cache.tree.new_root(name, root_uuid, made.generation)
            cache.dirty = True
            if not made.content:
                self._reader.read(cache)
        self._created.add(root_uuid)
        self._save_if_changed()
        return cache.tree.snapshot()

    def plan(
        self,
        base: ProviderTree,
        new: ProviderTree,
        allocations: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        owned: Callable[[str], bool] | None = None,
        original_allocations: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Operation]:
        """What :meth:`update_from_provider_tree` would do; no request."""

        def is_owned(provider: ProviderData) -> bool:
            if owned is not None:
                return owned(provider.uuid)
            return OWNER_NOVA in provider.traits or provider.uuid in self._created

        return plan(
            base,
            new,
            owned=is_owned,
            allocations=allocations,
            original_allocations=original_allocations,
            bulk=self._bulk_inventories and self._reshaper.allowed,
            known_traits=self.names.known_traits,
            known_classes=self.names.known_classes,
        )

    def update_from_provider_tree(
        self,
        base: ProviderTree,
        new: ProviderTree,
        allocations: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        owned: Callable[[str], bool] | None = None,
        original_allocations: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> FlushReport:
        """Bring placement from ``base`` to ``new``; nothing to do is no request.

        :param base: the tree as it was read for this pass.
        :param allocations: given for a reshape: consumer uuid -> record as it shall be.
        :param owned: whether a provider may be deleted (by uuid); None: it has the owner trait or
            this process created it.
        :param original_allocations: the allocations as they were read.  Without them, consumers are
            part of the reshape when they hold a class whose inventory changes; with them also
            those whose record differs.
        :raises errors.PlacementError: see :meth:`Flush.run`.
        """
        operations = self.plan(
            base, new, allocations, owned=owned, original_allocations=original_allocations
        )
        if not operations:
            return FlushReport()
        cache = self._cache(self._root_of(base, new))
        with cache.lock:
            if not cache.known:
                cache.tree, cache.known = base.snapshot(), True
            flush = Flush(
                root_uuid=cache.root_uuid,
                live=cache.tree,
                providers=self.providers,
                names=self.names,
                writes=ProviderWrites(
                    cache.tree, self.providers, self.names, self._reader, self._retries
                ),
                reshaper=self._reshaper,
                workers=self._workers,
            )
            try:
                report = flush.run(operations)
            finally:
                self._created.update(flush.report.created)
                self._say_kept(flush.report)
                if not all(isinstance(operation, KeepProvider) for operation in operations):
                    cache.dirty = True
                if any(isinstance(operation, SetAggregates) for operation in operations):
                    cache.sharing_due = True
                self._save_if_changed()
        return report

    def get_allocations_for_provider_tree(self, root_uuid: str) -> Consumers:
        """All consumers that hold anything on this root's tree, with all they hold anywhere.

        A consumer with allocations on sharing providers only is not found, and nothing of it moves.

        :raises errors.ResourceProviderAllocationRetrievalFailed: a provider's could not be read.
        :raises errors.ConsumerAllocationRetrievalFailed: a consumer's could not be read.
        """
        cache = self._cache(root_uuid)
        tally = self._connection.tally
        if tally is None or cache.probed_by != tally.global_request_id:
            self._reader.read(cache)
        if not cache.tree.exists(root_uuid):
            raise errors.ResourceProviderAllocationRetrievalFailed(
                f"Reading the allocations on the tree of {root_uuid} failed: no such provider"
            )
        members = [cache.tree.data(u) for u in cache.tree.get_provider_uuids_in_tree(root_uuid)]
        per_provider = self._workers.results(
            [partial(self.providers.allocations, p.uuid, p.name) for p in members]
        )
        consumers = list(dict.fromkeys(c for found in per_provider for c in found))
        records = self._workers.results(
            [partial(self.get_allocs_for_consumer, consumer) for consumer in consumers]
        )
        return {
            consumer: record
            for consumer, record in zip(consumers, records, strict=True)
            if record["allocations"]
        }

    # -- single providers --------------------------------------------------------------------

    def find_provider_by_name(self, name: str) -> ProviderData | None:
        """A provider with its inventory, traits and aggregates; None when there is none."""
        found = self.providers.by_name(name)
        return self._with_associations(found) if found is not None else None

    def find_provider(self, uuid: str) -> ProviderData | None:
        """As :meth:`find_provider_by_name`, by uuid."""
        found = self.providers.get(uuid)
        return self._with_associations(found) if found is not None else None

    def get_allocations_for_provider(self, uuid: str) -> Consumers:
        """Consumer uuid -> ``resources`` and ``consumer_generation`` on one provider."""
        return self.providers.allocations(uuid, uuid)

    def change_traits(
        self, uuid: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Add and remove traits of one provider at once: one read and one write, others' stay.

        :raises errors.ResourceProviderUpdateFailed: it could not be written.
        """
        held = self.providers.traits(uuid, uuid)
        wanted = (held.content | frozenset(add)) - frozenset(remove)
        if wanted == held.content:
            return
        written = self.providers.put_traits(uuid, uuid, held.generation, wanted)
        for cache in list(self._caches.values()):
            if cache.tree.exists(uuid) and cache.tree.data(uuid).generation == held.generation:
                cache.tree.update_traits(uuid, wanted, written.generation)
                cache.dirty = True

    def change_aggregates(
        self, uuid: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> None:
        """Add and remove aggregates of one provider; others' stay.

        :raises errors.ResourceProviderUpdateFailed: it could not be written.
        """

        def attempt() -> None:
            held = self.providers.aggregates(uuid, uuid)
            wanted = (held.content | frozenset(add)) - frozenset(remove)
            if wanted != held.content:
                self.providers.put_aggregates(uuid, uuid, held.generation, wanted)

        self._retries.while_conflicting(attempt)

    def delete_resource_provider(self, root_uuid: str, cascade: bool = False) -> None:
        """Delete a tree, leaf first.

        :param cascade: remove all allocations on its providers before.
        :raises errors.ResourceProviderInUse: a provider has allocations.
        """
        listed = {provider["uuid"]: provider for provider in self.providers.in_tree(root_uuid)}
        tree = ProviderTree()
        tree.populate_from_iterable(listed.values())
        if tree.exists(root_uuid):
            doomed = [tree.data(uuid) for uuid in reversed(tree.get_provider_uuids(root_uuid))]
            if cascade:
                for provider in doomed:
                    for consumer in self.providers.allocations(provider.uuid, provider.name):
                        self.delete_allocation(consumer, force=True)
            for provider in doomed:
                self.providers.delete(provider.uuid, provider.name)
        self.drop_cache(root_uuid)

    # -- inside ------------------------------------------------------------------------------

    def _cache(self, root_uuid: str) -> TreeCache:
        with self._lock:
            return self._caches.setdefault(root_uuid, TreeCache(root_uuid))

    def _root_of(self, base: ProviderTree, new: ProviderTree) -> str:
        """The node's own root: the other roots of the two trees are sharing providers."""
        roots = [*new.roots, *base.roots]
        for root in roots:
            if root.uuid in self._caches and SHARING_TRAIT not in root.traits:
                return root.uuid
        for root in roots:
            if SHARING_TRAIT not in root.traits:
                return root.uuid
        return roots[0].uuid

    def _with_associations(self, found: PlacementProvider) -> ProviderData:
        uuid, name = found["uuid"], found["name"]
        return ProviderData(
            uuid,
            name,
            found["generation"],
            found.get("parent_provider_uuid"),
            self.providers.inventories(uuid, name).content,
            self.providers.traits(uuid, name).content,
            self.providers.aggregates(uuid, name).content,
        )

    def _say_kept(self, report: FlushReport) -> None:
        deleted = {o.uuid for o in report.operations if isinstance(o, DeleteProvider)}
        for uuid in deleted - {kept.uuid for kept in report.kept}:
            self._kept.pop(uuid, None)
        for kept in report.kept:
            if self._kept.get(kept.uuid) != kept.reason:
                self._kept[kept.uuid] = kept.reason
                LOG.warning("Provider %s (%s) stays: %s", kept.name, kept.uuid, kept.reason)

    def _save_if_changed(self) -> None:
        if any(cache.dirty for cache in list(self._caches.values())):
            self._save()

    def _save(self, *, now: bool = False) -> None:
        with self._lock:
            caches = list(self._caches.values())
        for cache in caches:
            cache.dirty = False
        if self._file is not None:
            self._file.save({cache.root_uuid: cache.tree for cache in caches}, now=now)
