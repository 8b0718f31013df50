"""Requests at the same time, by several passes at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from compute_agent.placement.transports import request_pool


def test_two_passes_that_begin_at_once_share_one_pool_and_close_ends_it(monkeypatch):
    pools: list[ThreadPoolExecutor] = []
    shared: list[request_pool.RequestPool] = []

    def make(*arguments: object) -> ThreadPoolExecutor:
        pool = ThreadPoolExecutor(*arguments)
        pools.append(pool)
        if shared and len(pools) == 1:
            # another pass asks before this one has kept its pool
            other = threading.Thread(target=shared[0].results, args=([lambda: 1, lambda: 2],))
            other.start()
            other.join()
        return pool

    monkeypatch.setattr(request_pool, "ThreadPoolExecutor", make)
    shared.append(request_pool.RequestPool(connections=2))
    assert shared[0].results([lambda: "a", lambda: "b"]) == ["a", "b"]
    shared[0].close()
    assert len(pools) == 1
    assert all(thread.is_alive() is False for pool in pools for thread in pool._threads)


def test_workers_that_were_closed_may_be_closed_again():
    idle = request_pool.RequestPool()
    idle.close()
    idle.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        idle.results([lambda: 1, lambda: 2])
