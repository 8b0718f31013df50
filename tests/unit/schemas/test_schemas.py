"""Schemas by version, and that hostile values cost neither time nor a traceback."""

import time
from typing import Any

import pytest

from placement_server.api.resources import aggregates, resource_providers
from placement_server.schemas import allocation, inventory
from placement_server.schemas.validation import InvalidInstance, SchemaByVersion, pointer

UUID = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"


def fails(schema: SchemaByVersion, instance: Any, version: tuple[int, int] = (1, 39)) -> str:
    with pytest.raises(InvalidInstance) as raised:
        schema.check(instance, version)
    return str(raised.value)


@pytest.mark.parametrize(
    "spelling",
    [UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}"],
)
def test_bodies_take_a_uuid_in_any_spelling(spelling: str) -> None:
    resource_providers.CREATE.check({"name": "a", "uuid": spelling}, (1, 0))
    with_one_digit_less = spelling.replace("4", "", 1)
    assert "is not a 'uuid'" in fails(
        resource_providers.CREATE, {"name": "a", "uuid": with_one_digit_less}
    )


@pytest.mark.parametrize("field", ["total", "min_unit", "max_unit", "step_size"])
def test_the_text_of_a_failure_is_that_of_the_library(field: str) -> None:
    body = {"total": 1, "resource_provider_generation": 0, field: 0}
    text = fails(inventory.UPDATE, body)
    assert text.startswith("0 is less than the minimum of 1\n")
    assert f"Failed validating 'minimum' in schema['properties']['{field}']" in text
    body[field] = 2147483648
    assert "Failed validating 'maximum'" in fails(inventory.UPDATE, body)


def test_errors_about_other_things_show_the_schema_without_the_limits() -> None:
    text = fails(aggregates.REPLACE, {"aggregates": [0], "resource_provider_generation": ""})
    shown = fails(aggregates.REPLACE, [UUID, UUID], (1, 1))
    assert "is not of type 'string'" in text or "is not of type 'integer'" in text
    assert "'uniqueItems': True}" in shown
    assert "maxItems" not in text + shown
    assert "maxProperties" not in fails(allocation.POST, {})


def test_deep_nesting_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    fails(resource_providers.CREATE, deep)


@pytest.mark.parametrize(
    "body", [[0] * 3_000_000, {str(n): n for n in range(300_000)}, [[0] * 3_000_000]]
)
def test_a_big_body_of_the_wrong_shape_is_not_laid_out_in_full(body: Any) -> None:
    begun = time.process_time()
    assert len(fails(aggregates.REPLACE, body)) < 20_000
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "items",
    [
        [0] * 300_000,
        [{"a": number} for number in range(100_000)],
        [UUID, 1] * 150_000,
        ["x" * 10_000_000],
    ],
    ids=["numbers", "objects", "mixed", "one long string"],
)
def test_a_big_body_that_is_wrong_throughout_is_refused_quickly(items: list[Any]) -> None:
    begun = time.process_time()
    fails(aggregates.REPLACE, {"aggregates": items, "resource_provider_generation": 0})
    assert time.process_time() - begun < 5


def test_an_error_points_to_the_value_that_does_not_fit() -> None:
    body = {"allocations": {UUID: {"resources": {"VCPU": 0}}}, "project_id": "p", "user_id": "u"}
    with pytest.raises(InvalidInstance) as raised:
        allocation.PUT.check(body, (1, 12))
    assert raised.value.pointer == f"/allocations/{UUID}/resources/VCPU"
    assert raised.value.message == "0 is less than the minimum of 1"


def test_a_pointer_escapes_what_separates_its_parts() -> None:
    assert pointer("a/b", "~", 3) == "/a~1b/~0/3"
