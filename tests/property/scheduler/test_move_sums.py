"""Holdings of consumers during any move, against what placement must count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.placement.allocations.amounts import covers
from compute_agent.scheduler.moves.move import both_places, left_on_source

PROVIDERS = ("host", "cell", "pool", "other pool")
SHARED = frozenset({"pool", "other pool"})
CLASSES = ("VCPU", "DISK_GB")

allocations = st.dictionaries(
    st.sampled_from(PROVIDERS),
    st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 9), min_size=1),
)


def amount(held: dict[str, dict[str, int]], provider: str, name: str) -> int:
    return held.get(provider, {}).get(name, 0)


@given(allocations, allocations)
def test_instance_and_migration_hold_the_sum_and_of_a_shared_provider_the_larger(
    source: dict[str, dict[str, int]], destination: dict[str, dict[str, int]]
) -> None:
    kept = left_on_source(source, destination, SHARED)
    for provider in PROVIDERS:
        for name in CLASSES:
            here, there = amount(source, provider, name), amount(destination, provider, name)
            expected = max(here, there) if provider in SHARED else here + there
            assert amount(kept, provider, name) + there == expected
    assert all(n > 0 for amounts in kept.values() for n in amounts.values())
    assert all(kept.values())


@given(allocations, allocations)
def test_an_evacuated_instance_holds_the_destination_once_its_source_is_taken_away(
    source: dict[str, dict[str, int]], destination: dict[str, dict[str, int]]
) -> None:
    # the same guest: on a pool it needs what it needed, and hosts are different ones
    pools = {p: n for p, n in destination.items() if p in SHARED}
    here = {p: n for p, n in source.items() if p not in SHARED} | pools
    there = {f"far {p}": n for p, n in destination.items() if p not in SHARED} | pools
    both = both_places(here, there, SHARED)
    assert covers(both, here)
    assert {p: n for p, n in both.items() if p not in here or p in SHARED} == there
