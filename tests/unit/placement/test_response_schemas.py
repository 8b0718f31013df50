"""Every call of the client, answered by something that is not placement, or not quite."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from compute_agent import errors
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.report.client import ReportClient

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


def provider(**other: Any) -> dict[str, Any]:
    made = {"uuid": U, "name": "host1", "generation": 3, "parent_provider_uuid": None}
    return made | {"root_provider_uuid": U, "links": []} | other


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
    """A call of the client, the error it fails with, a good answer, and what is wrong with others.

    :ivar bad: words about the misfit in the message to the answer that has it.
    """

    make: Callable[[ReportClient], object]
    kind: type[errors.PlacementError]
    good: Any
    bad: dict[str, Any]
    newest: str = "1.39"


def holder(**other: Any) -> dict[str, Any]:
    held = {U: {"resources": {"VCPU": 1}, "generation": 2}}
    made = {"allocations": held, "project_id": "p", "user_id": "u", "consumer_generation": 1}
    return made | {"consumer_type": "INSTANCE"} | other


def inventory(**other: Any) -> dict[str, Any]:
    record = {key: value for key, value in (RECORD | other).items() if value != "missing"}
    return {"inventories": {"VCPU": record}, "resource_provider_generation": 1}


LISTED = {
    "resource_providers is null": {"resource_providers": None},
    "resource_providers[0] is 5": {"resource_providers": [5]},
    "resource_providers[0].name is missing": {
        "resource_providers": [
            {"uuid": U, "generation": 1, "parent_provider_uuid": None},
        ]
    },
    "resource_providers[1].generation is null": {
        "resource_providers": [provider(), provider(generation=None)]
    },
    "resource_providers[0].generation is true": {"resource_providers": [provider(generation=True)]},
    "resource_providers[0].parent_provider_uuid is []": {
        "resource_providers": [provider(parent_provider_uuid=[])]
    },
}
ONE_PROVIDER = {
    "generation is missing": {"uuid": U, "name": "host1", "parent_provider_uuid": None},
    'generation is "3"': provider(generation="3"),
    "name is null": provider(name=None),
}
GENERATION = {
    "resource_provider_generation is missing": {"inventories": {}},
    "resource_provider_generation is null": {"resource_provider_generation": None},
}
CANDIDATES = {
    "allocation_requests": [
        {"allocations": {U: {"resources": {"VCPU": 1}}}, "mappings": {"": [U]}},
    ],
    "provider_summaries": {U: {"resources": {"VCPU": {"used": 0, "capacity": 8}}, "traits": []}},
}

CALLS = {
    "tree": Call(
        lambda client: client.placement.providers.in_tree(U),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": [provider()]},
        LISTED,
    ),
    "by name": Call(
        lambda client: client.placement.providers.by_name("host1"),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": [provider()]},
        LISTED,
    ),
    "sharing": Call(
        lambda client: client.placement.providers.sharing([U]),
        errors.ResourceProviderRetrievalFailed,
        {"resource_providers": []},
        LISTED,
    ),
    "one provider": Call(
        lambda client: client.placement.providers.get(U),
        errors.ResourceProviderRetrievalFailed,
        provider(),
        ONE_PROVIDER | {"root_provider_uuid is null": provider(root_provider_uuid=None)},
    ),
    "inventories": Call(
        lambda client: client.placement.providers.inventories(U, "host1"),
        errors.ResourceProviderInventoryRetrievalFailed,
        inventory(),
        {
            "inventories is []": {"inventories": [], "resource_provider_generation": 1},
            "inventories.VCPU is 8": {
                "inventories": {"VCPU": 8},
                "resource_provider_generation": 1,
            },
            "inventories.VCPU.total is missing": inventory(total="missing"),
            'inventories.VCPU.total is "8"': inventory(total="8"),
            "inventories.VCPU.max_unit is null": inventory(max_unit=None),
            'inventories.VCPU.allocation_ratio is "1.5"': inventory(allocation_ratio="1.5"),
            "inventories.VCPU.colour": inventory(colour="red"),
            "resource_provider_generation is missing": {"inventories": {}},
            "resource_provider_generation is null": {
                "inventories": {},
                "resource_provider_generation": None,
            },
        },
    ),
    "traits": Call(
        lambda client: client.placement.providers.traits(U, "host1"),
        errors.ResourceProviderTraitRetrievalFailed,
        {"traits": ["COMPUTE_NODE"], "resource_provider_generation": 1},
        {
            "traits is 5": {"traits": 5, "resource_provider_generation": 1},
            'traits is "COMPUTE"': {"traits": "COMPUTE", "resource_provider_generation": 1},
            "traits[1] is {}": {"traits": ["A", {}], "resource_provider_generation": 1},
            'resource_provider_generation is "1"': {
                "traits": [],
                "resource_provider_generation": "1",
            },
        },
    ),
    "aggregates": Call(
        lambda client: client.placement.providers.aggregates(U, "host1"),
        errors.ResourceProviderAggregateRetrievalFailed,
        {"aggregates": [U], "resource_provider_generation": 1},
        {
            "aggregates is null": {"aggregates": None, "resource_provider_generation": 1},
            "aggregates[0] is 1": {"aggregates": [1], "resource_provider_generation": 1},
            "resource_provider_generation is missing": {"aggregates": []},
        },
    ),
    "allocations of a provider": Call(
        lambda client: client.placement.providers.allocations(U, "host1"),
        errors.ResourceProviderAllocationRetrievalFailed,
        {
            "allocations": {C: {"resources": {"VCPU": 1}, "consumer_generation": 1}},
            "resource_provider_generation": 1,
        },
        {
            "allocations is []": {"allocations": []},
            f"allocations.{C} is 1": {"allocations": {C: 1}},
            f"allocations.{C}.resources is missing": {
                "allocations": {C: {"consumer_generation": 1}}
            },
            f"allocations.{C}.resources.VCPU is 1.5": {
                "allocations": {C: {"resources": {"VCPU": 1.5}, "consumer_generation": 1}}
            },
            f"allocations.{C}.consumer_generation is missing": {
                "allocations": {C: {"resources": {"VCPU": 1}}}
            },
        },
    ),
    "known traits": Call(
        lambda client: client.placement.providers.known_traits(["CUSTOM_A"]),
        errors.TraitRetrievalFailed,
        {"traits": ["CUSTOM_A"]},
        {"traits is 5": {"traits": 5}, "traits[0] is null": {"traits": [None]}},
    ),
    "allocations of a consumer": Call(
        lambda client: client.placement.allocations.get_allocs_for_consumer(C),
        errors.ConsumerAllocationRetrievalFailed,
        holder(),
        {
            "allocations is []": {"allocations": []},
            "allocations is null": {"allocations": None},
            f"allocations.{U} is []": holder(allocations={U: []}),
            f"allocations.{U}.resources is missing": holder(allocations={U: {"generation": 2}}),
            f"allocations.{U}.resources is []": holder(allocations={U: {"resources": []}}),
            f"allocations.{U}.resources.VCPU is": holder(
                allocations={U: {"resources": {"VCPU": "1"}}}
            ),
            "consumer_generation is": holder(consumer_generation="1"),
            "project_id is missing": {
                "allocations": holder()["allocations"],
                "user_id": "u",
                "consumer_generation": 1,
            },
            "user_id is null": holder(user_id=None),
            "consumer_type is 3": holder(consumer_type=3),
        },
    ),
    "candidates": Call(
        lambda client: client.placement.candidates.get_allocation_candidates(
            [("resources", "VCPU:1")]
        ),
        errors.AllocationCandidateRetrievalFailed,
        CANDIDATES,
        {
            "allocation_requests is {}": CANDIDATES | {"allocation_requests": {}},
            "provider_summaries is []": CANDIDATES | {"provider_summaries": []},
            f"provider_summaries.{U} is null": CANDIDATES | {"provider_summaries": {U: None}},
            "allocation_requests[0].allocations is []": CANDIDATES
            | {"allocation_requests": [{"allocations": []}]},
            f"allocation_requests[0].allocations.{U}.resources is missing": CANDIDATES
            | {"allocation_requests": [{"allocations": {U: {}}}]},
        },
    ),
    "usages by type": Call(
        lambda client: client.placement.candidates.get_usages("p"),
        errors.UsageRetrievalFailed,
        {"usages": {"INSTANCE": {"consumer_count": 1, "VCPU": 2}}},
        {
            "usages is []": {"usages": []},
            "usages.VCPU is 2": {"usages": {"VCPU": 2}},
            "usages.INSTANCE.VCPU is null": {"usages": {"INSTANCE": {"VCPU": None}}},
        },
    ),
    "usages": Call(
        lambda client: client.placement.candidates.get_usages("p"),
        errors.UsageRetrievalFailed,
        {"usages": {"VCPU": 2}},
        {"usages.VCPU is {}": {"usages": {"VCPU": {}}}, "usages is null": {"usages": None}},
        newest="1.37",
    ),
    # writes that are answered with something
    "creating": Call(
        lambda client: client.placement.providers.create(U, "host1", None),
        errors.ResourceProviderCreationFailed,
        provider(generation=0),
        ONE_PROVIDER,
    ),
    "renaming": Call(
        lambda client: client.placement.providers.put(U, "host1", None, reparents=False),
        errors.ResourceProviderUpdateFailed,
        provider(),
        ONE_PROVIDER,
    ),
    "moving": Call(
        lambda client: client.placement.providers.put(U, "host1", C, reparents=True),
        errors.ResourceProviderUpdateFailed,
        provider(),
        ONE_PROVIDER,
    ),
    "replacing inventories": Call(
        lambda client: client.placement.providers.put_inventories(U, "host1", 1, {}),
        errors.InvalidInventory,
        {"resource_provider_generation": 2, "inventories": {}},
        GENERATION,
    ),
    "replacing traits": Call(
        lambda client: client.placement.providers.put_traits(U, "host1", 1, []),
        errors.TraitCreationFailed,
        {"resource_provider_generation": 2, "traits": []},
        GENERATION,
    ),
    "replacing aggregates": Call(
        lambda client: client.placement.providers.put_aggregates(U, "host1", 1, []),
        errors.ResourceProviderUpdateFailed,
        {"resource_provider_generation": 2, "aggregates": []},
        GENERATION,
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


@pytest.mark.parametrize(
    ("name", "misfit"), [(name, misfit) for name, call in CALLS.items() for misfit in call.bad]
)
def test_an_answer_with_the_right_keys_and_the_wrong_content_fails_the_call(name, misfit):
    call = CALLS[name]
    with pytest.raises(errors.PlacementError) as raised:
        asked(call, 200, json.dumps(call.bad[misfit]))
    error = raised.value
    assert type(error) is call.kind
    assert f"{error.method} {error.path} was answered 200" in str(error)
    assert misfit in str(error)


def test_the_message_says_what_was_expected_where_and_what_came():
    with pytest.raises(errors.ResourceProviderTraitRetrievalFailed) as raised:
        asked(CALLS["traits"], 200, '{"traits": 5, "resource_provider_generation": 1}')
    assert str(raised.value) == (
        f"Reading the traits of host1 ({U}) failed: GET /resource_providers/{U}/traits was "
        "answered 200 with something that is not the traits of a provider (traits is 5, not a "
        'list): \'{"traits": 5, "resource_provider_generation": 1}\'. Check that this '
        "is the URL of placement."
    )


def test_a_long_answer_is_not_shown_whole():
    listed = [provider() for _ in range(1000)] + [provider(name=["x" * 9000])]
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
        asked(Call(make, kind, None, {}), status, text)
    assert f"{request} was answered {status}" in str(raised.value)
    assert "201 or 204" in str(raised.value)


@pytest.mark.parametrize("status", [201, 204])
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_made_or_was_there_is_fine(name, status):
    make, kind, request = NAMES[name]
    transport, _answer = asked(Call(make, kind, None, {}), status, "")
    assert transport.asked == [request]
