"""Memory of a search: counted near what it takes, bounded, and dropped when it ends."""

from __future__ import annotations

import gc
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl

import pytest

from placement_server.candidates import response
from placement_server.candidates.errors import SearchGaveUp, TooMuchMemory, WorkerOutOfMemory
from placement_server.candidates.index.summaries import SummaryCache
from placement_server.candidates.limits import MIB, Account, HeavySearches, SearchMemory
from placement_server.candidates.query.parser import parse
from placement_server.candidates.response import Renderer
from placement_server.candidates.search.placements import Series
from placement_server.candidates.search.search import Candidate, Search, SearchLimits
from placement_server.candidates.service import CandidateService

from .forest import NO_STORE, SHARING, FixedFollower, Provider, writer_of

# What is counted is at least this share of what tracemalloc sees, and at most this many times it.
LEAST_SHARE = 1.0
MOST_TIMES = 4.0
# What does not grow with the search, such as what modules keep.
CONSTANT = 200_000


def gpu_hosts(hosts: int, gpus: int, total: int = 1) -> list[Provider]:
    """Hosts whose GPUs are alike; half of the GPUs have the trait CUSTOM_A."""
    world = []
    for host in range(hosts):
        world.append(Provider(f"host{host:032}"))
        for gpu in range(gpus):
            traits = ("CUSTOM_A",) if gpu % 2 else ()
            world.append(
                Provider(f"{host:018}{gpu:018}", f"host{host:032}", {"VGPU": total}, traits)
            )
    return world


def unlike_hosts(hosts: int, gpus: int) -> list[Provider]:
    """Hosts of which no two are alike: each is a kind of its own."""
    return [
        Provider(
            f"{host:018}{gpu:018}",
            f"{host:018}{0:018}" if gpu else None,
            {"VGPU": 3 + (host >> gpu & 1)},
        )
        for host in range(hosts)
        for gpu in range(gpus)
    ]


def sharing_hosts(hosts: int, pools: int) -> list[Provider]:
    """Hosts that each reach other pools."""
    return [
        *(
            Provider(f"pool{pool:032}", None, {"DISK_GB": 100}, (SHARING,), (f"agg{pool}",))
            for pool in range(pools)
        ),
        *(
            Provider(
                f"{host:036}",
                None,
                {"VCPU": 4},
                (),
                tuple(f"agg{pool}" for pool in range(pools) if host >> pool & 1),
            )
            for host in range(hosts)
        ),
    ]


def groups(count: int, policy: str = "isolate", more: str = "") -> str:
    resources = "&".join(f"resources_{number}=VGPU:1" for number in range(count))
    return f"{resources}&group_policy={policy}{more}"


def some_with_trait(count: int) -> str:
    return groups(count, "none", "".join(f"&required_{n}=CUSTOM_A" for n in range(0, count, 2)))


WORLDS: dict[str, tuple[Callable[[], list[Provider]], str]] = {
    "placements of one tree": (lambda: gpu_hosts(1, 64), groups(8)),
    "long texts": (lambda: gpu_hosts(1, 64), groups(63)),
    "parts of many sums": (lambda: gpu_hosts(2, 64, total=63), groups(20, "none")),
    "amounts seen before": (lambda: gpu_hosts(1, 64, total=8), some_with_trait(12)),
    "many alike trees": (lambda: gpu_hosts(1500, 1), "resources=VGPU:1"),
    "many kinds": (lambda: unlike_hosts(300, 12), groups(10, "none")),
    "many links": (lambda: sharing_hosts(2048, 11), "resources=VCPU:1,DISK_GB:1"),
}


def walked(search: Search, most: int) -> list[object]:
    """The candidates, so many at most; the search goes on to exist."""
    candidates = search.candidates()
    return [candidates, *(1 for _ in itertools.islice(candidates, most))]


@pytest.mark.parametrize("name", WORLDS)
def test_a_search_counts_about_what_it_holds(name: str) -> None:
    make, query = WORLDS[name]
    index = writer_of(make()).index
    parsed = parse(parse_qsl(query), (1, 39))
    walked(Search(parsed, index), 100)
    account = Account()
    held, counted = traced(account, lambda: walked(Search(parsed, index, account=account), 1000))
    check(name, held, counted)


@pytest.mark.parametrize("name", WORLDS)
def test_an_answer_counts_about_what_it_holds_while_it_is_written(name: str) -> None:
    make, query = WORLDS[name]
    index = writer_of(make()).index
    parsed = parse(parse_qsl(query + "&limit=1000"), (1, 39))
    # What is kept of trees for later answers has a bound of its own.
    summaries = SummaryCache()
    body(Search(parsed, index, SearchLimits(100)), summaries)
    account = Account()
    seen: list[tuple[int, int]] = []

    def stopped_near_the_end() -> object:
        search = Search(parsed, index, SearchLimits(1000), account=account)
        renderer = Renderer(parsed, search.plan, index, (1, 39), summaries, account)

        def watched() -> Iterator[Candidate]:
            yield from search.candidates()
            seen.append((tracemalloc.get_traced_memory()[0], account.held_bytes))

        return renderer.body(watched())

    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        stopped_near_the_end()
    finally:
        tracemalloc.stop()
    held, counted = seen[-1]
    check(name, held - before, counted)


def check(name: str, held: int, counted: int) -> None:
    assert counted >= LEAST_SHARE * held - CONSTANT, name
    assert counted <= MOST_TIMES * held + CONSTANT, name


def traced(account: Account, search: Callable[[], object]) -> tuple[int, int]:
    """What a search has allocated and not freed, and what it has counted of it."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = search()
        held, counted = tracemalloc.get_traced_memory()[0] - before, account.held_bytes
        del result
    finally:
        tracemalloc.stop()
    return held, counted


def body(search: Search, summaries: SummaryCache, account: Account | None = None) -> bytes:
    renderer = Renderer(search.query, search.plan, search.index, (1, 39), summaries, account)
    return b"".join(renderer.body(search.candidates()))


def test_an_answer_of_hosts_of_one_provider_is_counted() -> None:
    index = writer_of([Provider(f"host{number}", None, {"VCPU": 4}) for number in range(50)]).index
    query = parse([("resources", "VCPU:1")], (1, 39))
    account = Account()
    assert len(body(Search(query, index, account=account), SummaryCache(), account)) > 5000
    assert account.held_bytes > 5000
    account = Account(SearchMemory(5000, MIB))
    with pytest.raises(TooMuchMemory):
        body(Search(query, index, account=account), SummaryCache(), account)


def test_a_search_that_holds_too_much_gives_up() -> None:
    account = Account(SearchMemory(2 * MIB, 100 * MIB))
    account.take(2 * MIB)
    with pytest.raises(TooMuchMemory, match=r"hold more than 2 MiB of memory.*search_memory"):
        account.take(1)


def test_what_was_refused_is_not_counted() -> None:
    account = Account(SearchMemory(MIB, 8 * MIB))
    account.take(1000)
    with pytest.raises(TooMuchMemory):
        account.take(2 * MIB)
    account.take(1000)
    assert account.held_bytes == 2000


def test_all_searches_together_hold_no_more_than_they_may() -> None:
    memory = SearchMemory(10 * MIB, 16 * MIB)
    first, second = Account(memory), Account(memory)
    first.take(10 * MIB)
    with pytest.raises(WorkerOutOfMemory, match=r"hold 14 MiB of memory.*worker_search_memory"):
        second.take(5 * MIB)
    first.close()
    second.take(5 * MIB)
    second.close()
    assert memory.granted_size == 0


def test_heavy_searches_leave_memory_to_light_ones() -> None:
    memory = SearchMemory(16 * MIB, 16 * MIB)
    heavy, light = Account(memory), Account(memory)
    heavy.heavy = True
    heavy.take(9 * MIB)
    with pytest.raises(WorkerOutOfMemory):
        heavy.take(2 * MIB)
    light.take(2 * MIB)


def test_an_answer_is_counted_until_it_has_been_sent_and_nothing_else_of_its_search() -> None:
    memory = SearchMemory(10 * MIB, 16 * MIB)
    account = Account(memory)
    account.take(8 * MIB)
    account.settle(3000)
    assert memory.granted_size == 3000
    account.close()
    account.close()
    assert memory.granted_size == 0


def test_an_account_that_is_forgotten_is_closed() -> None:
    memory = SearchMemory(10 * MIB, 16 * MIB)
    Account(memory).take(8 * MIB)
    assert memory.granted_size == 0


def test_memory_is_returned_to_the_system_after_a_search_that_held_much() -> None:
    returned: list[int] = []
    memory = SearchMemory(100 * MIB, 200 * MIB, return_memory=lambda: returned.append(1))
    little, much = Account(memory), Account(memory)
    little.take(MIB)
    little.close()
    assert not returned
    much.take(50 * MIB)
    much.settle(1)
    much.close()
    assert returned == [1]


@pytest.mark.parametrize("name", WORLDS)
def test_a_search_that_gave_up_leaves_nothing_to_the_garbage_collector(name: str) -> None:
    make, query = WORLDS[name]
    service = CandidateService(
        NO_STORE,
        memory=SearchMemory(MIB // 4, 256 * MIB),
        follower=FixedFollower(writer_of(make()).index),
    )
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(SearchGaveUp) as caught:
            service.answer(parse(parse_qsl(query), (1, 39)), (1, 39))
        # The error is still there, but nothing of what was found.
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Search | Renderer)]
        del caught
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Series | Candidate)]
    finally:
        gc.enable()


def test_a_search_that_failed_is_not_counted_while_its_error_is_around() -> None:
    def fail() -> None:
        raise OSError("the client is gone")

    make, query = WORLDS["placements of one tree"]
    memory = SearchMemory(10 * MIB, 16 * MIB)
    follower = FixedFollower(writer_of(make()).index)
    service = CandidateService(
        NO_STORE, memory=memory, heavy=HeavySearches(1, 0), follower=follower
    )
    with pytest.raises(OSError, match="the client") as caught:
        service.answer(parse(parse_qsl(query), (1, 39)), (1, 39), fail)
    assert memory.granted_size == 0
    assert caught.tb is not None  # which still has the frames


def test_the_texts_of_trees_that_are_kept_have_a_bound_and_the_oldest_go() -> None:
    index = writer_of(gpu_hosts(100, 1)).index
    cache = SummaryCache(20_000)
    roots = index.roots.tolist()
    texts = {root: cache.trees(index, [root])[0] for root in roots}
    assert 10_000 < cache.size <= 20_000
    # What was added last is the same object, what was added first has been written again.
    assert cache.trees(index, [roots[-1]])[0] is texts[roots[-1]]
    again = cache.trees(index, [roots[0]])[0]
    assert again is not texts[roots[0]]
    assert again == texts[roots[0]]


def test_which_providers_pass_is_kept_within_a_bound_whatever_names_are_asked_for() -> None:
    index = writer_of([Provider(f"host{host}", None, {"VCPU": 1}) for host in range(40)]).index
    tracemalloc.start()
    try:
        for number in range(1500):
            aggregates = [f"{number:018}{other:018}" for other in range(100)]
            index.with_aggregates((frozenset(aggregates[:50]),), frozenset(aggregates[50:]))
        used, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 5 * MIB


@pytest.mark.parametrize("name", WORLDS)
def test_an_answer_in_chunks_has_the_same_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, query = WORLDS[name]
    index = writer_of(make()).index
    parsed = parse(parse_qsl(query + "&limit=300"), (1, 39))
    whole = body(Search(parsed, index, SearchLimits(300)), SummaryCache())
    assert len(json.loads(whole)["allocation_requests"]) == 300
    monkeypatch.setattr(response, "_CHUNK", 1000)
    monkeypatch.setattr(response, "_AT_ONCE", 7)
    monkeypatch.setattr(response, "_MOST_KEPT", 5000)
    account = Account()
    search = Search(parsed, index, SearchLimits(300), account=account)
    renderer = Renderer(parsed, search.plan, index, (1, 39), SummaryCache(), account)
    chunks = renderer.body(search.candidates())
    assert len(chunks) > 3
    assert b"".join(chunks) == whole
