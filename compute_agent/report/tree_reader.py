"""Reader of a tree: the probe of one request, and further reads after changes.

quiet pass       GET in_tree: names, parents and generations are the known ones; nothing else
new provider     its inventories, traits and aggregates, at once
moved provider   marked stale; read at the next association refresh or before a write to it, since
                 nearly always it only got allocations; at once where it is known that it got more
every 2nd pass   of a host in an aggregate, the sharing providers, which leave no trace in its tree
refresh          stale aspects, the sharing providers of all aggregates, and now and then the
                 aggregates of all (writers with an old microversion leave no trace)

Where placement has whole trees, the probe is a conditional read of all of it with the sharing
providers: nothing is ever stale but generations, which claims raise and a tag leaves out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from msgspec import Struct

from compute_agent import errors
from compute_agent.placement.connection import Retries
from compute_agent.placement.provider_trees import Part, ProviderTrees, UnchangedTree, WholeTree
from compute_agent.placement.providers import AtGeneration, Providers
from compute_agent.placement.transports.request_pool import RequestPool
from compute_agent.provider_tree import ASPECTS, PlacementProvider, ProviderTree
from compute_agent.report.cache import TreeCache, replace_sharing, take_in, with_whole
from compute_agent.report.diff import diff

LOG = logging.getLogger(__name__)

ALL_AGGREGATES_EVERY: Final = 12
REFRESH_JITTER: Final = 0.2


class TreeReader(Struct, frozen=True):
    """A reader that updates a `TreeCache` from placement.

    :ivar interval: returns the seconds between association refreshes; 0 for never.
    """

    providers: Providers
    trees: ProviderTrees
    workers: RequestPool
    retries: Retries
    interval: Callable[[], float]

    def read(self, cache: TreeCache, *, fresh: bool = False) -> None:
        """Probe, and read what is needed now.  The cache changes only when all of it succeeded.

        :param fresh: read also stale aspects, as a reshape needs it; with a whole tree also what
            its consumers have.
        :raises errors.PlacementError: something could not be read.
        """
        with cache.lock:
            is_due = cache.written_elsewhere
            if is_due:
                # and only then: another thread may set it just now
                cache.written_elsewhere = False
            try:
                self.retries.while_conflicting(lambda: self._read_either_way(cache, fresh, is_due))
            except errors.PlacementError:
                cache.written_elsewhere |= is_due
                raise

    def reread(self, tree: ProviderTree, uuid: str, aspects: Iterable[str]) -> None:
        """Read some aspects of one provider into `tree`."""
        for (_, aspect), content in self._read_aspects(tree, [(uuid, name) for name in aspects]):
            take_in(tree, uuid, aspect, content)

    def _read_either_way(self, cache: TreeCache, fresh: bool, is_due: bool) -> None:
        if self.trees.is_offered:
            try:
                self._read_whole(cache, fresh)
            except errors.PlacementTooOld:
                LOG.info("Placement no longer offers whole trees; reading each provider.")
            else:
                return
        self._read_once(cache, fresh or is_due)
        cache.generations_unseen, cache.allocations = False, None

    def _read_whole(self, cache: TreeCache, fresh: bool) -> None:
        answer = self.trees.read(
            cache.root_uuid,
            etag=None if fresh else cache.etag,
            include=[Part.SHARING, Part.ALLOCATIONS] if fresh else [Part.SHARING],
        )
        tree, etag, allocations = cache.tree, cache.etag, None
        cache.generations_unseen = isinstance(answer, UnchangedTree)
        if isinstance(answer, WholeTree):
            tree, etag, allocations = _with_whole(cache, answer), answer.etag, answer.allocations
            if fresh and cache.etag is not None and not diff(cache.tree, tree):
                # the one without allocations, which claims do not change
                etag = cache.etag
        elif answer is None:
            tree, etag, allocations = ProviderTree(), None, {}
        self._commit(cache, tree, False, etag)
        cache.allocations = allocations if fresh else None

    def _read_once(self, cache: TreeCache, fresh: bool) -> None:
        providers = self.providers.in_tree(cache.root_uuid)
        refresh = self._refresh_is_due(cache)
        looks_for_sharing = refresh or fresh or _sharing_is_due(cache)
        if not looks_for_sharing and _is_as_known(cache, providers):
            self._commit(cache, cache.tree, refresh)
            return
        tree = cache.tree.snapshot()
        before = {uuid: tree.data(uuid).generation for uuid in tree.get_provider_uuids()}
        try:
            tree.populate_from_iterable(providers, complete_tree_of=cache.root_uuid)
        except ValueError:
            # A name moved to a provider that the cache has elsewhere: start from nothing.
            before, looks_for_sharing = {}, True
            tree = _tree_of(providers, cache.root_uuid)
        own = [provider["uuid"] for provider in providers]
        # never read: new here, or the hint of a file is outdated
        unread_uuids = [
            uuid
            for uuid in own
            if uuid not in before or (cache.hint and before[uuid] != tree.data(uuid).generation)
        ]
        needed_uuids = {(uuid, aspect) for uuid in unread_uuids for aspect in ASPECTS}
        if refresh or fresh:
            needed_uuids |= {(uuid, aspect) for uuid in own for aspect in tree.stale_aspects(uuid)}
        if refresh and cache.refreshes % ALL_AGGREGATES_EVERY == ALL_AGGREGATES_EVERY - 1:
            needed_uuids |= {(uuid, "aggregates") for uuid in own}
        root = cache.root_uuid
        if looks_for_sharing and tree.exists(root) and "aggregates" in tree.stale_aspects(root):
            needed_uuids.add((root, "aggregates"))
        order = {uuid: place for place, uuid in enumerate(tree.get_provider_uuids())}
        self._read_into(tree, sorted(needed_uuids, key=lambda pair: (order[pair[0]], pair[1])))
        if looks_for_sharing:
            self._read_sharing(tree, set(own))
            cache.reads_since_sharing = -1
        self._commit(cache, tree, refresh)

    def _read_sharing(self, tree: ProviderTree, own: set[str]) -> None:
        aggregates = {aggregate for uuid in own for aggregate in tree.data(uuid).aggregates}
        sharing_providers = self.providers.sharing(aggregates) if aggregates else []
        lone: list[PlacementProvider] = [
            {
                "uuid": provider["uuid"],
                "name": provider["name"],
                "generation": provider["generation"],
                "parent_provider_uuid": None,
            }
            for provider in sharing_providers
            if provider["uuid"] not in own
        ]
        replace_sharing(tree, own, lone)
        self._read_into(
            tree,
            [
                (uuid, aspect)
                for uuid in sorted(provider["uuid"] for provider in lone)
                for aspect in tree.stale_aspects(uuid)
            ],
        )

    def _read_into(self, tree: ProviderTree, aspects_by_uuid: list[tuple[str, str]]) -> None:
        try:
            for (uuid, aspect), content in self._read_aspects(tree, aspects_by_uuid):
                take_in(tree, uuid, aspect, content)
        except errors.ResourceProviderNotFound as exc:
            raise errors.ResourceProviderUpdateConflict(
                f"a provider disappeared while its tree was read: {exc}"
            ) from exc

    def _read_aspects(
        self, tree: ProviderTree, pairs: list[tuple[str, str]]
    ) -> list[tuple[tuple[str, str], AtGeneration[Any]]]:
        ask: dict[str, Callable[[str, str], AtGeneration[Any]]] = {
            "inventories": self.providers.inventories,
            "aggregates": self.providers.aggregates,
            "traits": self.providers.traits,
        }
        tasks = [partial(ask[aspect], uuid, tree.data(uuid).name) for uuid, aspect in pairs]
        return list(zip(pairs, self.workers.results(tasks), strict=True))

    def _refresh_is_due(self, cache: TreeCache) -> bool:
        if not cache.is_known:
            return not cache.hint
        interval = self.interval()
        if not interval or cache.refresh_at is None:
            return False
        return self.retries.clock.monotonic() >= cache.refresh_at

    def _commit(
        self, cache: TreeCache, tree: ProviderTree, refresh: bool, etag: str | None = None
    ) -> None:
        interval = self.interval()
        if interval and (refresh or cache.refresh_at is None):
            wait = self.retries.with_jitter(interval, REFRESH_JITTER)
            cache.refresh_at = self.retries.clock.monotonic() + wait
        cache.refreshes += refresh
        if tree is not cache.tree or etag != cache.etag:
            cache.dirty |= etag != cache.etag or tree != cache.tree
            cache.store(tree, etag)
        cache.is_known, cache.hint = True, False
        cache.reads_since_sharing += 1


def _sharing_is_due(cache: TreeCache) -> bool:
    """Whether to look for sharing providers, so that one is seen within two passes.

    Without an aggregate none reaches the host; the root may have joined one where it moved.
    """
    tree = cache.tree
    if not cache.is_known:
        return True
    if cache.reads_since_sharing < 1 or not tree.exists(cache.root_uuid):
        return False
    if "aggregates" in tree.stale_aspects(cache.root_uuid):
        return True
    own = tree.get_provider_uuids_in_tree(cache.root_uuid)
    return any(tree.data(uuid).aggregates for uuid in own)


def _with_whole(cache: TreeCache, whole: WholeTree) -> ProviderTree:
    for tree in (cache.tree, ProviderTree()):
        try:
            return with_whole(tree, cache.root_uuid, whole.providers, whole.sharing_providers)
        except ValueError as exc:
            # A name moved to a provider that the cache has elsewhere: start from nothing.
            error = exc
    raise _no_tree(cache.root_uuid, error) from error


def _no_tree(root_uuid: str, why: ValueError) -> errors.ResourceProviderRetrievalFailed:
    return errors.ResourceProviderRetrievalFailed(
        f"Reading the provider tree of {root_uuid} returned something that is not a tree: {why}"
    )


def _tree_of(providers: list[PlacementProvider], root_uuid: str) -> ProviderTree:
    tree = ProviderTree()
    try:
        tree.populate_from_iterable(providers)
    except ValueError as exc:
        raise _no_tree(root_uuid, exc) from exc
    return tree


def _is_as_known(cache: TreeCache, providers: list[PlacementProvider]) -> bool:
    """Return whether the probe shows nothing new: the quiet case, which must be cheap."""
    tree, root = cache.tree, cache.root_uuid
    known_providers = map(
        tree.data, tree.get_provider_uuids_in_tree(root) if tree.exists(root) else ()
    )
    return {p.uuid: (p.name, p.generation, p.parent_uuid) for p in known_providers} == {
        p["uuid"]: (p["name"], p["generation"], p.get("parent_provider_uuid")) for p in providers
    }
