"""The caches of the trees of one client, and the file in which they survive a restart.

A provider's generation rises with every write to its inventories, traits and aggregates and with
allocations being put on it.  So as long as the generation in the one-request probe is the cached
one, the cache is right.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field, json

from compute_agent.placement.answers import Records, inventory_of
from compute_agent.placement.connection import Clock
from compute_agent.placement.providers import AtGeneration
from compute_agent.programs.decoding import Whole
from compute_agent.provider_tree import ASPECTS, PlacementProvider, ProviderTree
from compute_agent.state import documents
from compute_agent.state import files as state_files
from compute_agent.state.documents import FileUnusable

LOG = logging.getLogger(__name__)

FORMAT: Final = 1
FEW_TREES: Final = 8
MANY_TREES_INTERVAL: Final = 60.0


class CachedProvider(Struct, frozen=True):
    """One provider of a tree, as it is kept.

    :param stale: the aspects that have to be read again.
    """

    uuid: str
    name: str
    generation: Whole
    parent_provider_uuid: str | None
    inventory: Records
    traits: frozenset[str]
    aggregates: frozenset[str]
    stale: frozenset[str]


class _Format(Struct, frozen=True):
    format: Whole


class _CachedTrees(_Format, frozen=True):
    trees: dict[str, list[CachedProvider]]
    etags: dict[str, str] = {}


class TreeCache(Struct):
    """One root's tree as last read from placement or written to it.

    `hint`: it comes from a file and no probe has confirmed it yet.  `probed_by`: global request
    id of the pass that read the tree last.  `etag`: of exactly this tree, where it was read as a
    whole.  `generations_unseen`: only that tag confirmed it, so generations may have risen.
    `allocations`: what its consumers had, where they were read with it.  `written_elsewhere`:
    another writer is known to have changed more than allocations.  `reads_since_sharing`: reads
    of the tree since the sharing providers were read.
    """

    root_uuid: str
    tree: ProviderTree = field(default_factory=ProviderTree)
    hint: bool = False
    is_known: bool = False
    refresh_at: float | None = None
    refreshes: int = 0
    reads_since_sharing: int = 0
    probed_by: str | None = None
    etag: str | None = None
    generations_unseen: bool = False
    allocations: Mapping[str, dict[str, Any]] | None = None
    dirty: bool = False
    written_elsewhere: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def store(self, tree: ProviderTree, etag: str | None) -> None:
        """Take in another tree; nobody sees it with the etag of the one before."""
        self.etag = None
        self.tree = tree
        self.etag = etag


def take_in(tree: ProviderTree, uuid: str, aspect: str, answer: AtGeneration[Any]) -> None:
    """Store one aspect of a provider as it was read.

    When the generation moved since the other aspects were read, those are stale; when this answer
    is older than the generation in the tree, it is stale.
    """
    earlier = tree.data(uuid).generation or 0
    generation = max(earlier, answer.generation)
    match aspect:
        case "inventories":
            tree.update_inventory(uuid, answer.content, generation, operator_keys=())
        case "aggregates":
            tree.update_aggregates(uuid, answer.content, generation)
        case "traits":
            tree.update_traits(uuid, answer.content, generation)
        case _:
            raise ValueError(f"no aspect {aspect}")
    if answer.generation > earlier:
        tree.mark_stale(uuid)
    if answer.generation == generation:
        tree.mark_fresh(uuid, [aspect])
    else:
        tree.mark_stale(uuid, [aspect])


def replace_sharing(
    tree: ProviderTree, own: Collection[str], providers: Sequence[PlacementProvider]
) -> None:
    """Let a tree have these sharing providers beside its own, and no other."""
    present = {provider["uuid"] for provider in providers}
    for root in tree.roots:
        if root.uuid not in own and root.uuid not in present:
            tree.remove(root.uuid)
    tree.populate_from_iterable(providers)


def with_whole(
    tree: ProviderTree,
    root_uuid: str,
    providers: Sequence[Mapping[str, Any]],
    sharing_providers: Sequence[Mapping[str, Any]],
) -> ProviderTree:
    """Return a tree with that of one root replaced by what was read as a whole.

    :raises ValueError: the providers are not a tree, or two have one name.
    """
    result = tree.snapshot()
    result.populate_from_iterable(
        cast("Sequence[PlacementProvider]", providers), complete_tree_of=root_uuid
    )
    # sharing providers are lone roots here, wherever they are in trees of their own
    lone = [{**provider, "parent_provider_uuid": None} for provider in sharing_providers]
    own = {provider["uuid"] for provider in providers}
    replace_sharing(result, own, cast("Sequence[PlacementProvider]", lone))
    for provider in (*providers, *sharing_providers):
        uuid = provider["uuid"]
        result.update_inventory(uuid, provider["inventories"], operator_keys=())
        result.update_traits(uuid, provider["traits"])
        result.update_aggregates(uuid, provider["aggregates"])
        result.mark_fresh(uuid)
    return result


class CacheFile:
    """The file `placement-cache.json`: a hint, so one that cannot be used is set aside.

    It is replaced atomically.  An agent with many nodes writes it once a minute at most.
    """

    def __init__(self, path: str | os.PathLike[str], clock: Clock) -> None:
        self._path = Path(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._written_at: float | None = None
        self.is_pending = False
        """Whether something was left unwritten for later."""

    def load(self) -> dict[str, TreeCache]:
        """Return the trees by root uuid, empty when the file is missing or cannot be used."""
        try:
            content = documents.read_file(self._path)
            found_format = documents.parse(content, _Format).format
            if found_format != FORMAT:
                LOG.info("Ignoring the cache %s: it has format %s", self._path, found_format)
                return {}
            cached = documents.parse(content, _CachedTrees)
            return {
                root: TreeCache(
                    root, _tree_from(root, providers), hint=True, etag=cached.etags.get(root)
                )
                for root, providers in cached.trees.items()
            }
        except FileNotFoundError:
            return {}
        except FileUnusable as error:
            self._set_aside(error)
            return {}

    def _set_aside(self, error: FileUnusable) -> None:
        try:
            whereabouts = f"is kept as {state_files.set_aside(self._path)}"
        except OSError as failure:
            whereabouts = f"cannot be renamed ({failure.strerror})"
        LOG.warning(
            "The cache %s %s. Everything is read from placement, and the file %s.",
            self._path,
            error,
            whereabouts,
        )

    def save(self, caches: Collection[TreeCache], *, now: bool = False) -> None:
        """Write the trees, unless many trees were written a moment ago and `now` is False.

        A file that cannot be written is logged and does no harm: the next start reads more.
        """
        with self._lock:
            if not now and len(caches) > FEW_TREES and self._written_at is not None:
                since = self._clock.monotonic() - self._written_at
                if since < MANY_TREES_INTERVAL:
                    self.is_pending = True
                    return
            self._written_at = self._clock.monotonic()
            self.is_pending = False
            etags = {cache.root_uuid: cache.etag for cache in caches}
            # the next start would refuse the file for one that has come below another provider
            trees = {
                cache.root_uuid: _cached_providers(tree)
                for cache in caches
                if _is_tree_of(cache.root_uuid, tree := cache.tree)
            }
            # no etag where a pass took in another tree meanwhile
            unchanged = {
                cache.root_uuid for cache in caches if cache.etag == etags[cache.root_uuid]
            }
            unchanged_etags = {
                root: etag for root, etag in etags.items() if etag and root in unchanged
            }
            document = _CachedTrees(FORMAT, trees, unchanged_etags)
            content = json.encode(document, order="deterministic")
            if len(content) > documents.MAX_BYTES:
                LOG.warning(
                    "The cache of %d trees in %s was not written: it would have more than %d "
                    "bytes. The next start reads everything from placement.",
                    *(len(caches), self._path, documents.MAX_BYTES),
                )
                return
            try:
                state_files.write_atomically(self._path, content)
            except OSError as exc:
                LOG.warning(
                    "The cache %s was not written: %s. The next start reads everything from "
                    "placement. Free space or correct the permissions of the directory.",
                    self._path,
                    exc,
                )


def _cached_providers(tree: ProviderTree) -> list[CachedProvider]:
    providers = (tree.data(uuid) for uuid in tree.get_provider_uuids())
    return [
        CachedProvider(
            provider.uuid,
            provider.name,
            provider.generation,
            provider.parent_uuid,
            cast("Records", provider.inventory),  # written alike
            provider.traits,
            provider.aggregates,
            tree.stale_aspects(provider.uuid),
        )
        for provider in providers
        if provider.generation is not None
    ]


def _tree_from(root: str, providers: Sequence[CachedProvider]) -> ProviderTree:
    tree = ProviderTree()
    for cached in providers:
        uuid, parent = cached.uuid, cached.parent_provider_uuid
        try:
            if parent is None:
                tree.new_root(cached.name, uuid, cached.generation)
            else:
                tree.new_child(cached.name, parent, uuid, cached.generation)
        except ValueError as error:
            raise FileUnusable(f"is damaged: trees.{root} is not a tree ({error})") from error
        tree.update_inventory(uuid, inventory_of(cached.inventory))
        tree.update_traits(uuid, cached.traits)
        tree.update_aggregates(uuid, cached.aggregates)
        tree.mark_stale(uuid, cached.stale.intersection(ASPECTS))
    if providers and not _is_tree_of(root, tree):
        raise FileUnusable(f"is damaged: trees.{root} is not the tree of this root")
    return tree


def _is_tree_of(root: str, tree: ProviderTree) -> bool:
    return tree.exists(root) and tree.data(root).parent_uuid is None


class TreeCaches:
    """Caches by root uuid.  Safe in several threads; each cache has a lock of its own.

    :param path: file that survives a restart, if any.
    """

    def __init__(self, path: str | os.PathLike[str] | None, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._file = CacheFile(path, clock) if path is not None else None
        self._caches: dict[str, TreeCache] = self._file.load() if self._file is not None else {}

    def __contains__(self, root_uuid: str) -> bool:
        return root_uuid in self._caches

    def of(self, root_uuid: str) -> TreeCache:
        """Return the cache of a tree, an empty one if there was none."""
        with self._lock:
            return self._caches.setdefault(root_uuid, TreeCache(root_uuid))

    def get(self, root_uuid: str) -> TreeCache | None:
        """Return the cache of a tree if there is one."""
        with self._lock:
            return self._caches.get(root_uuid)

    def all(self) -> list[TreeCache]:
        """Return the caches of all trees."""
        with self._lock:
            return list(self._caches.values())

    def drop(self, root_uuid: str | None = None) -> None:
        """Forget one tree, or all."""
        with self._lock:
            for root in [root_uuid] if root_uuid else list(self._caches):
                self._caches.pop(root, None)

    def save_if_changed(self) -> None:
        """Write the file if something in it is outdated."""
        if any(cache.dirty for cache in self.all()):
            self._save()

    def close(self) -> None:
        """Write what was left unwritten for later."""
        if self._file is not None and self._file.is_pending:
            self._save(now=True)

    def _save(self, *, now: bool = False) -> None:
        caches = self.all()
        for cache in caches:
            cache.dirty = False
        if self._file is not None:
            self._file.save(caches, now=now)
