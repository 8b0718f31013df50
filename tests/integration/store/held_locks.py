"""Locks that another transaction holds, for as long as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from placement_server.store.providers import inventory_rows
from placement_server.store.store import Store
from placement_server.store.transaction import WriteTransaction
from tests.integration.store.interleaving import DEADLINE


def hold_inventories(tx: WriteTransaction, host: str) -> None:
    inventory_rows.hold(tx, host)


@contextmanager
def held(store: Store, hold: Callable[[WriteTransaction, str], None], host: str) -> Iterator[None]:
    """Somebody else has locked these rows."""
    has, go = threading.Event(), threading.Event()

    def sit_on_it(tx: WriteTransaction) -> None:
        hold(tx, host)
        has.set()
        assert go.wait(DEADLINE), "nobody told the holder to go on"

    with ThreadPoolExecutor(1) as pool:
        holder = pool.submit(store.write, sit_on_it)
        try:
            assert has.wait(DEADLINE), "the rows cannot be locked"
            yield
        finally:
            go.set()
            holder.result(DEADLINE)
