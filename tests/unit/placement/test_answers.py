"""Every call of the client, answered by something that is not placement, or not quite."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.bounded_http.limits import LARGE
from compute_agent.placement.candidates import Candidates
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.report.client import ReportClient
from tests.unit.tracker.damaged_documents import places

U = "6a2cd4b4-5c46-4f0a-a1a3-8e0a9a5ec0a0"
C = "11111111-5c46-4f0a-a1a3-8e0a9a5ec0a0"
RECORD = {
    "total": 8,
    "reserved": 0,
    "min_unit": 1,
    "max_unit": 8,
    "step_size": 1,
    "allocation_ratio": 1.5,
}


PROVIDER = {"uuid": U, "name": "host1", "generation": 3, "parent_provider_uuid": None}


def version_document(newest: str) -> dict[str, Any]:
    return {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": newest}]}


class ScriptedAnswer:
    """Tells its versions, and answers everything else with one text."""

    def __init__(self, status: int, text: str, newest: str = "1.39") -> None:
        self.status, self.text, self.newest = status, text, newest
        self.asked: list[str] = []

    def send(self, request: Request) -> Response:
        if request.path == "/":
            return make_response(200, [], json.dumps(version_document(self.newest)))
        self.asked.append(str(request))
        return make_response(self.status, [], self.text)


@dataclass(frozen=True)
class Call:
    """A call of the client, the error it fails with, and a good answer with what it reads."""

    make: Callable[[ReportClient], object]
    kind: type[errors.PlacementError]
    good: Any
    newest: str = "1.39"


HOLDER = {
    "allocations": {U: {"resources": {"VCPU": 1}}},
    "project_id": "p",
    "user_id": "u",
    "consumer_generation": 1,
    "consumer_type": "INSTANCE",
}
CANDIDATES = {
    "allocation_requests": [{"allocations": {U: {"resources": {"VCPU": 1}}}}],
    "provider_summaries": {
        U: {
            "resources": {"VCPU": {"used": 0, "capacity": 8}},
            "traits": ["COMPUTE_NODE"],
            "parent_provider_uuid": None,
            "root_provider_uuid": U,
        }
    },
}
OPTIONAL = RECORD.keys() - {"total"} | {"consumer_count", "consumer_type"}

CALLS = {
    "tree": Call(
        lambda client: client.placement.providers.in_tree(U),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": [PROVIDER]},
    ),
    "by name": Call(
        lambda client: client.placement.providers.by_name("host1"),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": [PROVIDER]},
    ),
    "sharing": Call(
        lambda client: client.placement.providers.sharing([U]),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": [PROVIDER]},
    ),
    "one provider": Call(
        lambda client: client.placement.providers.get(U),
        errors.ResourceProviderRetrievalFailed,
        PROVIDER | {"root_provider_uuid": U},
    ),
    "inventories": Call(
        lambda client: client.placement.providers.inventories(U, "host1"),
        errors.ResourceProviderInventoryRetrievalFailed,
        {"inventories": {"VCPU": RECORD}, "resource_provider_generation": 1},
    ),
    "traits": Call(
        lambda client: client.placement.providers.traits(U, "host1"),
        errors.ResourceProviderTraitRetrievalFailed,
        {"traits": ["COMPUTE_NODE"], "resource_provider_generation": 1},
    ),
    "aggregates": Call(
        lambda client: client.placement.providers.aggregates(U, "host1"),
        errors.ResourceProviderAggregateRetrievalFailed,
        {"aggregates": [U], "resource_provider_generation": 1},
    ),
    "allocations of a provider": Call(
        lambda client: client.placement.providers.allocations(U, "host1"),
        errors.ResourceProviderAllocationRetrievalFailed,
        {"allocations": {C: {"resources": {"VCPU": 1}, "consumer_generation": 1}}},
    ),
    "known traits": Call(
        lambda client: client.placement.providers.known_traits(["CUSTOM_A"]),
        errors.TraitRetrievalFailed,
        {"traits": ["CUSTOM_A"]},
    ),
    "allocations of a consumer": Call(
        lambda client: client.placement.allocations.get_allocs_for_consumer(C),
        errors.ConsumerAllocationRetrievalFailed,
        HOLDER,
    ),
    "candidates": Call(
        lambda client: Candidates(client.placement.connection).get_allocation_candidates(
            [("resources", "VCPU:1")]
        ),
        errors.AllocationCandidateRetrievalFailed,
        CANDIDATES,
    ),
    "usages by type": Call(
        lambda client: Candidates(client.placement.connection).get_usages("p"),
        errors.UsageRetrievalFailed,
        {"usages": {"INSTANCE": {"consumer_count": 1, "VCPU": 2}}},
    ),
    "usages": Call(
        lambda client: Candidates(client.placement.connection).get_usages("p"),
        errors.UsageRetrievalFailed,
        {"usages": {"VCPU": 2}},
        newest="1.37",
    ),
    # writes that are answered with something
    "creating": Call(
        lambda client: client.placement.providers.create(U, "host1", None),
        errors.ResourceProviderCreationFailed,
        PROVIDER,
    ),
    "renaming": Call(
        lambda client: client.placement.providers.put(U, "host1", None, reparents=False),
        errors.ResourceProviderUpdateFailed,
        PROVIDER,
    ),
    "moving": Call(
        lambda client: client.placement.providers.put(U, "host1", C, reparents=True),
        errors.ResourceProviderUpdateFailed,
        PROVIDER,
    ),
    "replacing inventories": Call(
        lambda client: client.placement.providers.put_inventories(U, "host1", 1, {}),
        errors.InvalidInventory,
        {"resource_provider_generation": 2},
    ),
    "replacing traits": Call(
        lambda client: client.placement.providers.put_traits(U, "host1", 1, []),
        errors.TraitCreationFailed,
        {"resource_provider_generation": 2},
    ),
    "replacing aggregates": Call(
        lambda client: client.placement.providers.put_aggregates(U, "host1", 1, []),
        errors.ResourceProviderUpdateFailed,
        {"resource_provider_generation": 2},
    ),
}
FOREIGN = ["<html>log in</html>", "", "[]", "{}", "null", "5", '"x"', '{"resource_prov']


def asked(call: Call, status: int, text: str) -> tuple[ScriptedAnswer, object]:
    transport = ScriptedAnswer(status, text, call.newest)
    client = ReportClient(transport)
    try:
        return transport, call.make(client)
    finally:
        client.close()


@pytest.mark.parametrize("name", CALLS)
def test_a_good_answer_is_taken(name):
    transport, _answer = asked(CALLS[name], 200, json.dumps(CALLS[name].good))
    assert transport.asked


def test_a_consumer_that_holds_nothing_has_no_owner_either():
    _, record = asked(CALLS["allocations of a consumer"], 200, '{"allocations": {}}')
    assert record == {"allocations": {}}


@pytest.mark.parametrize("text", FOREIGN)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_answer_of_placement_fails_the_call_and_is_shown(name, text):
    call = CALLS[name]
    with pytest.raises(errors.PlacementError) as raised:
        asked(call, 200, text)
    error = raised.value
    assert type(error) is call.kind
    assert error.status == 200
    assert f"{error.method} {error.path} was answered 200" in str(error)
    assert repr(text) in str(error)
    assert "URL of placement" in str(error)


OTHERS: dict[type, tuple[Any, ...]] = {
    int: (True, "1", 1.5, None),
    float: ("1.5", None),
    str: (5, None, []),
    list: ({}, "COMPUTE", None),
    dict: ([], 5, None),
    type(None): ([], 5),
}
"""Values of other kinds than a good one."""


def misfits(good: Any) -> Iterator[tuple[str, Any]]:
    """Yield each answer that is bad in one place, after the words for that place."""
    for path in places(good):
        *above, last = path
        if "provider_summaries" in path and "traits" in path:
            # what is wrong is said when they are decoded: tests/unit/scheduler/test_answer.py
            continue
        words = re.sub(
            r"^\.", "", "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
        )
        changed = copy.deepcopy(good)
        holding = reduce(lambda part, step: part[step], above, changed)
        value = holding[last]
        for other in OTHERS[type(value)]:
            holding[last] = other
            yield f"{words} is {json.dumps(other)}", copy.deepcopy(changed)
        if re.fullmatch("[a-z_]+", str(last)) and last not in OPTIONAL:
            del holding[last]
            yield f"{words} is missing", changed


@pytest.mark.parametrize(
    ("name", "words", "answer"),
    [(name, *misfit) for name, call in CALLS.items() for misfit in misfits(call.good)],
)
def test_an_answer_with_the_right_keys_and_the_wrong_content_fails_the_call(name, words, answer):
    call = CALLS[name]
    with pytest.raises(errors.PlacementError) as raised:
        asked(call, 200, json.dumps(answer))
    error = raised.value
    assert type(error) is call.kind
    assert f"{error.method} {error.path} was answered 200" in str(error)
    assert words in str(error)


def test_an_inventory_with_a_key_that_nobody_knows_fails_the_call():
    record = {"inventories": {"VCPU": RECORD | {"colour": 1}}, "resource_provider_generation": 1}
    with pytest.raises(errors.ResourceProviderInventoryRetrievalFailed, match=r"VCPU\.colour"):
        asked(CALLS["inventories"], 200, json.dumps(record))


def test_the_message_says_what_was_expected_where_and_what_came():
    with pytest.raises(errors.ResourceProviderTraitRetrievalFailed) as raised:
        asked(CALLS["traits"], 200, '{"traits": 5, "resource_provider_generation": 1}')
    assert str(raised.value) == (
        f"Reading the traits of host1 ({U}) failed: GET /resource_providers/{U}/traits was "
        "answered 200 with something that is not what was asked for (traits is 5, not a "
        'list): \'{"traits": 5, "resource_provider_generation": 1}\'. Check that this '
        "is the URL of placement."
    )


def test_the_place_is_not_looked_for_key_by_key_in_an_answer_that_is_very_large():
    usages = {f"CUSTOM_{number:0100}": 1 for number in range(LARGE // 100)} | {"VCPU": None}
    with pytest.raises(errors.UsageRetrievalFailed) as raised:
        asked(CALLS["usages"], 200, json.dumps({"usages": usages}))
    assert "at `$.usages[...]`" in str(raised.value)


def test_a_long_answer_is_not_shown_whole():
    listed = [PROVIDER] * 1000 + [PROVIDER | {"name": ["x" * 9000]}]
    with pytest.raises(errors.ResourceProviderRetrievalFailed) as raised:
        asked(CALLS["tree"], 200, json.dumps({"resource_providers": listed}))
    assert "resource_providers[1000].name is" in str(raised.value)
    assert len(str(raised.value)) < 1500


NAMES = {
    "a trait": (
        lambda client: client.placement.providers.create_trait("CUSTOM_A"),
        errors.TraitCreationFailed,
        "PUT /traits/CUSTOM_A",
    ),
    "a resource class": (
        lambda client: client.placement.providers.create_resource_class("CUSTOM_A"),
        errors.InvalidResourceClass,
        "PUT /resource_classes/CUSTOM_A",
    ),
}


@pytest.mark.parametrize("text", FOREIGN)
@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_made_only_when_placement_says_so(name, status, text):
    make, kind, request = NAMES[name]
    with pytest.raises(kind) as raised:
        asked(Call(make, kind, None), status, text)
    assert f"{request} was answered {status}" in str(raised.value)
    assert "201 or 204" in str(raised.value)


@pytest.mark.parametrize("status", [201, 204])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_made_or_was_there_is_fine(name, status):
    make, kind, request = NAMES[name]
    transport, _answer = asked(Call(make, kind, None), status, "")
    assert transport.asked == [request]
