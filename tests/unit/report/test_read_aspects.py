"""Aspects of a provider that are read one by one, while other writers change it."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from compute_agent.placement.providers import AtGeneration
from compute_agent.provider_tree import ASPECTS, ProviderTree
from compute_agent.report.cache import take_in

ROOT: Final = "00000000-0000-0000-0000-000000000001"

moments = st.lists(st.sampled_from(ASPECTS), min_size=1, max_size=6)
"""Writes by others: each changes one aspect, and leads to the next generation."""
reads = st.lists(st.tuples(st.sampled_from(ASPECTS), st.integers(0, 6)), min_size=1, max_size=8)
"""Answers, as they come in: of which aspect, and how many writes they have seen."""


def content(aspect: str, version: int) -> Any:
    if aspect == "inventories":
        return {"VCPU": {"total": version + 1}}
    prefix = "CUSTOM_T" if aspect == "traits" else "0" * 35
    return frozenset({f"{prefix}{version}"})


@given(moments, reads)
def test_an_aspect_that_counts_as_read_is_that_of_the_generation_of_the_provider(
    writes: list[str], answers: list[tuple[str, int]]
) -> None:
    versions = [dict.fromkeys(ASPECTS, 0)]
    for aspect in writes:
        versions.append({**versions[-1], aspect: versions[-1][aspect] + 1})
    tree = ProviderTree()
    tree.new_root("host", ROOT, 0)
    tree.mark_stale(ROOT)
    newest = 0
    for aspect, seen in answers:
        generation = min(seen, len(writes))
        answer = content(aspect, versions[generation][aspect])
        take_in(tree, ROOT, aspect, AtGeneration(generation, answer))
        provider = tree.data(ROOT)
        newest = max(newest, generation)
        assert provider.generation == newest
        present: dict[str, Any] = {
            "inventories": {rc: {"total": r["total"]} for rc, r in provider.inventory.items()},
            "traits": provider.traits,
            "aggregates": provider.aggregates,
        }
        for fresh in set(ASPECTS) - tree.stale_aspects(ROOT):
            assert present[fresh] == content(fresh, versions[newest][fresh])
