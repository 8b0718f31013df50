"""The account given of a search."""

from __future__ import annotations

from urllib.parse import parse_qsl

from placement_server.candidates.closest.relaxations import Trials
from placement_server.candidates.explain import Explanation, explain
from placement_server.candidates.query.parser import parse
from tests.unit.candidates.forest import Provider, writer_of

WORLD = [
    Provider("small", None, {"VCPU": 2}, ("CUSTOM_FAST",)),
    Provider("large", None, {"VCPU": 8}),
    Provider("gpus", None, {}, ("CUSTOM_FAST",)),
    Provider("gpu0", "gpus", {"VGPU": 1}),
    Provider("gpu1", "gpus", {"VGPU": 1}),
]


def told(query: str) -> Explanation:
    return explain(parse(parse_qsl(query), (1, 39)), Trials(writer_of(WORLD).index, 60.0))


def test_the_filter_that_rejects_the_last_trees_is_named() -> None:
    explanation = told("resources=VCPU:4&required=CUSTOM_FAST")
    assert explanation.lines() == [
        "3 tree(s) of providers.",
        "resources VCPU:4: leaves 1 provider(s).",
        "resources VCPU:4: rejects 2 tree(s).",
        "required CUSTOM_FAST: rejects 1 tree(s).",
        "0 tree(s) passed all filters.",
    ]


def test_trees_without_a_combination_are_counted_by_reason() -> None:
    query = "resources1=VGPU:1&resources2=VGPU:1&resources3=VGPU:1&group_policy=isolate"
    explanation = told(query)
    assert explanation.trees_tried == 1
    assert dict(explanation.combinations_failed) == {"too few distinct providers": 1}
    query = query.replace("isolate", "none")
    assert dict(told(query).combinations_failed) == {"capacity in sum": 1}


def test_dead_providers_are_not_counted() -> None:
    writer = writer_of(WORLD)
    tree = writer.tree(1)
    writer.apply({1: tree})
    explanation = explain(parse([("resources1", "VCPU:1")], (1, 39)), Trials(writer.index, 60.0))
    assert explanation.steps[0]["providers_left"] == 2
