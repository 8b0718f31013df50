"""A worker process of the feed tests: follows a store and tells what its index holds."""

from __future__ import annotations

from multiprocessing.connection import Connection

from placement_server.candidates.feed import Feed
from placement_server.store.snapshot import ProviderRow
from placement_server.store.store import Store


def run(url: str, requests: Connection) -> None:
    """Answer requests until None comes: a provider's uuid, or "" for all trees."""
    store = Store.open(url)
    feed = Feed(store)
    while (uuid := requests.recv()) is not None:
        index = feed.index()
        if not uuid:
            requests.send(list(index.trees()))
            continue
        slot = index.slot_of(uuid)
        row: ProviderRow | None = None
        if slot is not None:
            tree = index.tree(int(index.root[slot]))
            row = next(each for each in tree.providers if each.uuid == uuid)
        requests.send(row)
    store.close()
