"""Quick acceptance: what it accepts fits for the library too, and usual bodies are accepted."""

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from placement_server import schemas
from placement_server.api import extensions, resources
from placement_server.api.request import check_json, parse_json
from placement_server.negotiation.microversion import Microversion
from placement_server.schemas.acceptance import Acceptance
from placement_server.schemas.validation import InvalidInstance, SchemaByVersion, anchored

UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
TEXTS = [
    *(UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"{UUID}\n", "x" * 36),
    *("", "a", "VCPU", "CUSTOM_A", "CUSTOM_A\n", "custom", "A" * 255, "A" * 256, "é", "INSTANCE"),
    *("_GROUP", "1", "12", "in:a,b", "!CUSTOM_A", "VCPU:1", "usages", "usages,allocations"),
]
NUMBERS = [-1, 0, 1, 2, 1.0, 0.5, -0.1, 2**31 - 1, 2**31, 2**63, 3.5e38, float("inf")]
STRANGE = [
    *(b"", b"", b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc2\xa0"),
    *(b" \n", b"0", b"-", b".0", b"e1", b"e400", b"9" * 400, b"NaN", b"\\", b"\\u0000"),
    *(b",", b'"', b'"a": 1, ', b"[", b"}"),
]  # fmt: skip
"""What is inserted somewhere into a body."""
ANYTHING = st.sampled_from([None, True, False, *NUMBERS, *TEXTS]) | st.sampled_from(
    [[], {}, ["a", "a"], [1], {"a": 1}]
)
INSERTIONS = st.sampled_from(STRANGE)


def all_schemas() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema of every version, by its name."""
    folders = (schemas, resources, extensions)
    modules = [
        f"{folder.__name__}.{module.name}"
        for folder in folders
        for module in pkgutil.iter_modules(folder.__path__)
    ]
    for loaded in map(importlib.import_module, modules):
        for name, value in vars(loaded).items():
            if isinstance(value, SchemaByVersion):
                texts = {
                    str(value.schema((1, minor))): minor
                    for minor in range(39, -1, -1)
                    if has(value, minor)
                }
                for minor in texts.values():
                    yield (
                        f"{loaded.__name__.rpartition('.')[2]}.{name} 1.{minor}",
                        value.schema((1, minor)),
                    )


def has(schema: SchemaByVersion, minor: int) -> bool:
    try:
        schema.schema((1, minor))
    except LookupError:
        return False
    return True


ALL = dict(all_schemas())


def instances(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema, and values that nearly do."""
    if "anyOf" in schema:
        return st.one_of([instances(part) for part in schema["anyOf"]])
    types = schema["type"]
    near = [_of_type(kind, schema) for kind in ([types] if isinstance(types, str) else types)]
    return st.one_of(*near, *near, *near, ANYTHING)


def _of_type(kind: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "object":
        return _objects(schema)
    if kind == "array":
        return st.lists(instances(schema.get("items", {"type": "string"})), max_size=3)
    if kind == "string":
        return st.sampled_from([*TEXTS, *schema.get("enum", ())])
    if kind == "null":
        return st.none()
    edges = [
        schema[name] + step
        for name in ("minimum", "maximum")
        if name in schema
        for step in (-1, 0, 1)
    ]
    return st.sampled_from([*NUMBERS, *edges])


def _objects(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    properties = {key: instances(part) for key, part in schema.get("properties", {}).items()}
    required = {key: properties.pop(key) for key in schema.get("required", ()) if key in properties}
    named = st.fixed_dictionaries(required, optional=properties)
    parts = [instances(part) for part in schema.get("patternProperties", {}).values()]
    if not parts:
        return named | st.builds(
            lambda one, more: {**one, **more},
            named,
            st.dictionaries(st.sampled_from(TEXTS), ANYTHING, max_size=1),
        )
    matched = st.dictionaries(st.sampled_from(TEXTS), st.one_of(parts), max_size=2)
    return st.builds(lambda one, more: {**one, **more}, named, matched)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_accepted_quickly_fits_for_the_library(name: str, data: st.DataObject) -> None:
    instance = data.draw(instances_of(name))
    if quick(name).accepts(instance):
        library(name).check(instance, (1, 0))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_body_is_decoded_to_what_the_library_would_read(name: str, data: st.DataObject) -> None:
    body = json.dumps(data.draw(instances_of(name)), ensure_ascii=False).encode()
    place = data.draw(st.integers(0, len(body)))
    body = body[:place] + data.draw(INSERTIONS) + body[place:]
    decoded_body = quick(name).decode(body)
    if decoded_body is not UNSET:
        instance = parse_json(body)
        check_json(instance, library(name), Microversion(1, 0))
        assert repr(in_order(decoded_body)) == repr(in_order(instance))


def in_order(value: Any) -> Any:
    """The same value with the keys of each object sorted: their order says nothing."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


@cache
def instances_of(name: str) -> st.SearchStrategy[Any]:
    return instances(ALL[name])


@cache
def quick(name: str) -> Acceptance:
    return Acceptance(ALL[name], anchored)


@cache
def library(name: str) -> SchemaByVersion:
    """With a keyword that types do not know, the library alone is asked."""
    return SchemaByVersion({0: {**ALL[name], "$comment": ""}})


CLAIM = {
    "allocations": {UUID: {"resources": {"VCPU": 1, "CUSTOM_A": 2}}},
    "consumer_generation": None,
    "project_id": "p",
    "user_id": "u",
    "consumer_type": "INSTANCE",
}

REPORT = {
    "period": 60.0,
    "bus": {"state": "up", "since": "2026-01-02T03:04:05Z", "why": ""},
    "disabled_reason": "",
    "trouble": "",
    "place": dict.fromkeys(("address", "machine_id", "boot_id", "state_path"), "a"),
    "cells": [{"id": 0, "cores": [[[0, None], [1, UUID]]]}],
}


@pytest.mark.parametrize(
    ("name", "instance"),
    [
        ("agent_reports.REPORT 1.0", REPORT),
        ("allocation.PUT 1.38", CLAIM),
        ("allocation.POST 1.38", {UUID: CLAIM, UUID.upper(): CLAIM}),
        ("resource_providers.CREATE 1.14", {"name": "a", "parent_provider_uuid": None}),
        (
            "inventory.REPLACE 1.0",
            {
                "resource_provider_generation": 1,
                "inventories": {"VCPU": {"total": 8, "allocation_ratio": 4.0}},
            },
        ),
        (
            "provider_traits.REPLACE 1.6",
            {"resource_provider_generation": 1, "traits": ["CUSTOM_A"]},
        ),
    ],
)
def test_usual_bodies_are_accepted_quickly(name: str, instance: Any) -> None:
    assert quick(name).accepts(instance)
    assert quick(name).decode(json.dumps(instance).encode()) == instance


@pytest.mark.parametrize(
    "query",
    [
        {"resources": "VCPU:1", "limit": "5", "member_of": "in:a"},
        {"resources_A": "VCPU:1", "required1": "b", "group_policy": "isolate"},
    ],
)
def test_usual_searches_are_accepted_quickly(query: dict[str, str]) -> None:
    assert quick("allocation_candidates.LIST 1.36").accepts(query)
    assert not quick("allocation_candidates.LIST 1.36").accepts({**query, "other": "1"})


@pytest.mark.parametrize("keyword", [{"$comment": ""}, {"minProperties": 2}])
@pytest.mark.parametrize("name", ["allocation_candidates.LIST 1.36", "usages.TOTAL 1.38"])
def test_a_schema_with_a_keyword_that_no_type_has_accepts_nothing(
    name: str, keyword: dict[str, Any]
) -> None:
    query = {"resources": "VCPU:1"} if "candidates" in name else {"project_id": "p"}
    assert quick(name).accepts(query)
    assert not Acceptance({**ALL[name], **keyword}, anchored).accepts(query)


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"type": "object", "required": ["a"]}, {}),
        ({"type": "string", "enum": ["a"], "minLength": 2}, "a"),
        ({"type": "string", "enum": ["a"], "pattern": "b"}, "a"),
    ],
)
def test_no_keyword_is_left_out(schema: dict[str, Any], instance: Any) -> None:
    assert not Acceptance(schema, anchored).accepts(instance)


@pytest.mark.parametrize(
    "text",
    [
        b'{"resource_provider_generation": 1, "traits": ["CUSTOM_\\u0041"]}',
        b'{"resource_provider_generation": 1.0, "traits": []}',
        b'\xef\xbb\xbf{"resource_provider_generation": 1, "traits": []}',
        b'{"resource_provider_generation": 1, "traits": ["CUSTOM_\xff"]}',
        b'{"resource_provider_generation": 1, "traits": []',
        b'{"resource_provider_generation": 1, "traits": ' + b"[" * 100_000,
    ],
    ids=["escape", "float", "mark", "bytes", "half", "depth"],
)
def test_an_unusual_body_is_left_to_the_library(text: bytes) -> None:
    assert quick("provider_traits.REPLACE 1.6").decode(text) is UNSET


def test_of_a_name_that_is_there_twice_the_last_counts() -> None:
    text = b'{"resource_provider_generation": 1, "traits": [], "resource_provider_generation": 2}'
    assert quick("provider_traits.REPLACE 1.6").decode(text) == parse_json(text)


def test_the_library_judges_what_is_not_accepted() -> None:
    schema = SchemaByVersion({0: {"type": "integer", "minimum": 1}})
    schema.check(2.0, (1, 0))
    with pytest.raises(InvalidInstance):
        schema.check(True, (1, 0))
