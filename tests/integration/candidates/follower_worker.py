"""A worker process for the tests of followers: follows a store and returns what its index holds."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection

from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.index import Index
from placement_server.store.changes.snapshot import NameRows, ProviderRow, TreeRows
from placement_server.store.store import Store


@dataclass(frozen=True)
class Content:
    """All that a search can learn from an index, without where in its arrays it lies.

    :param fits: the largest amount that still fits, by provider and class.
    :param links: pairs of a sharing provider and the root of a tree that may use it.
    """

    trees: list[TreeRows]
    names: NameRows
    nested: bool
    fits: dict[tuple[str, int], int]
    links: set[tuple[str, str]]


def content(index: Index) -> Content:
    uuid, root = index.columns.uuid, index.root.tolist()
    alive = set(index.roots.tolist())
    fits = {
        (uuid[slot], class_id): fit
        for class_id, view in index.classes.items()
        for slot, fit in zip(view.slot.tolist(), view.fit.tolist(), strict=True)
        if root[slot] in alive
    }
    pairs = zip(index.links.share.tolist(), index.links.anchor.tolist(), strict=True)
    return Content(
        list(index.trees()),
        NameRows(dict(index.names.class_ids), dict(index.names.trait_ids)),
        index.has_nested,
        fits,
        {(uuid[share], uuid[anchor]) for share, anchor in pairs},
    )


def run(url: str, requests: Connection) -> None:
    """Answer requests until None comes: a provider's uuid, or "" for everything."""
    store = Store.open(url)
    follower = IndexFollower(store)
    while (uuid := requests.recv()) is not None:
        index = follower.index()
        if not uuid:
            requests.send(content(index))
            continue
        slot = index.slot_of(uuid)
        row: ProviderRow | None = None
        if slot is not None:
            tree = index.tree(int(index.root[slot]))
            row = next(provider for provider in tree.providers if provider.uuid == uuid)
        requests.send(row)
    store.close()
