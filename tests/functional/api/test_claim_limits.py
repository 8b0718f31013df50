"""Limits of a claim: what there is, within the limits of its inventory, all or nothing."""

import logging

import pytest
from oslo_context import context

from placement_server.api.resources.allocations import claim_conflict
from placement_server.store.errors import ConcurrentUpdate
from tests.fixtures.allocations import claim_body

from .one_host import EMPTY, RP, UNKNOWN, A, B, C, entry, held, new_host
from .wsgi_client import Client


@pytest.fixture
def host(api: Client) -> str:
    return new_host(api)


def test_an_unknown_provider_is_400(api: Client, host: str) -> None:
    body = claim_body({UNKNOWN: {"VCPU": 1}})
    for answer in (api.put(f"/allocations/{A}", body), api.post("/allocations", {A: body})):
        assert answer.status == 400
        assert answer.detail == (
            f"Allocation for resource provider '{UNKNOWN}' that does not exist."
        )


def test_an_unknown_class_is_400_in_the_words_of_its_route(api: Client, host: str) -> None:
    body = claim_body({RP: {"VCPU": 1, "NOPE": 1}})
    assert api.put(f"/allocations/{A}", body).detail == (
        f"Unable to allocate inventory for consumer {A}: No such resource class NOPE."
    )
    assert api.post("/allocations", {A: body}).detail == (
        "Unable to allocate inventory No such resource class NOPE."
    )


@pytest.mark.parametrize(
    ("amount", "reason"),
    [
        (11, "would exceed the capacity."),
        (1, "would violate inventory constraints."),
        (9, "would violate inventory constraints."),
        (10**30, "would violate inventory constraints."),
        (3, "would violate inventory constraints."),
    ],
)
def test_what_does_not_fit_is_409_with_the_undefined_code(
    api: Client, amount: int, reason: str
) -> None:
    provider = api.provider("host", uuid=RP)
    limits = {} if amount == 11 else {"min_unit": 2, "max_unit": 8, "step_size": 2}
    api.inventory(provider, VCPU={"total": 10, **limits})
    answer = api.put(f"/allocations/{A}", entry(vcpu=amount))
    assert (answer.status, answer.code) == (409, "placement.undefined_code")
    assert answer.detail == (
        "Unable to allocate inventory: Unable to create allocation for 'VCPU' on resource "
        f"provider '{RP}'. The requested amount {reason}"
    )
    assert api.generation(provider) == 1


def test_the_log_says_what_was_asked_and_free_and_for_which_request(
    api: Client, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    requests: list[str] = []

    class Watch(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            current = context.get_current()
            assert current is not None
            requests.append(current.request_id)
            return True

    logger = logging.getLogger("placement_server.api.resources.allocations")
    watch = Watch()
    logger.addFilter(watch)
    try:
        answer = api.put(f"/allocations/{A}", entry(vcpu=11))
        api.put(f"/allocations/{A}", claim_body({RP: {"MEMORY_MB": 1}}))
    finally:
        logger.removeFilter(watch)
    assert answer.status == 409
    full, missing = (line for line in caplog.records if line.name == logger.name)
    assert (full.levelno, missing.levelno) == (logging.WARNING, logging.WARNING)
    for named in (RP, "VCPU", "11 of", "10 free"):
        assert named in full.getMessage()
    assert RP in missing.getMessage()
    assert "MEMORY_MB" in missing.getMessage()
    assert requests[0] == answer.headers["x-openstack-request-id"]


@pytest.mark.parametrize(
    ("uuids", "what"), [([RP], "the resource provider data"), ([], "the data")]
)
def test_a_lost_race_is_told_in_words_that_clients_look_for(
    caplog: pytest.LogCaptureFixture, uuids: list[str], what: str
) -> None:
    with caplog.at_level(logging.INFO):
        conflict = claim_conflict(ConcurrentUpdate("VCPU of a host changed.", uuids=uuids))
    assert (conflict.status, conflict.code) == (409, "placement.concurrent_update")
    assert str(conflict) == (
        "Inventory and/or allocations changed while attempting to allocate: Another thread "
        f"concurrently updated {what}. Please retry your update"
    )
    assert "VCPU of a host changed." in caplog.text


def test_a_class_without_inventory_is_409(api: Client, host: str) -> None:
    answer = api.put(f"/allocations/{A}", claim_body({RP: {"MEMORY_MB": 1}}))
    assert (answer.status, answer.code) == (409, "placement.undefined_code")
    assert answer.detail == (
        f"Unable to allocate inventory: Inventory for 'MEMORY_MB' on resource provider '{RP}' "
        "invalid."
    )


def test_post_sums_for_capacity_and_checks_constraints_one_by_one(api: Client) -> None:
    provider = api.provider("host", uuid=RP)
    api.inventory(provider, VCPU={"total": 8, "max_unit": 4})
    three = {consumer: entry(vcpu=3) for consumer in (A, B, C)}
    answer = api.post("/allocations", three)
    assert answer.status == 409
    assert answer.detail.endswith("would exceed the capacity.")
    assert held(api, A) == EMPTY, "all or nothing"
    two = {consumer: entry(vcpu=4) for consumer in (A, B)}
    assert api.post("/allocations", two).status == 204, "8 in all, though max_unit is 4"


def test_post_moves_resources_of_a_full_provider_between_consumers(api: Client, host: str) -> None:
    assert api.put(f"/allocations/{A}", entry(vcpu=10)).status == 204
    moved = {A: claim_body({}, 1), B: entry(vcpu=10)}
    assert api.post("/allocations", moved).status == 204
    assert held(api, A) == EMPTY
    assert held(api, B)["allocations"][RP]["resources"] == {"VCPU": 10}


def test_an_over_capacity_provider_takes_rewrites_that_do_not_make_it_worse(
    api: Client, host: str
) -> None:
    for consumer in (A, B):
        assert api.put(f"/allocations/{consumer}", entry(vcpu=5)).status == 204
    lowered = {"resource_provider_generation": api.generation(host), "total": 4}
    assert api.put(f"{host}/inventories/VCPU", lowered).status == 200
    assert api.put(f"/allocations/{A}", entry(vcpu=5, generation=1)).status == 204
    assert api.put(f"/allocations/{A}", entry(vcpu=4, generation=2)).status == 204
    assert api.put(f"/allocations/{A}", entry(vcpu=5, generation=3)).status == 409
    assert api.put(f"/allocations/{C}", entry(vcpu=1)).status == 409
    swapped = {A: entry(vcpu=5, generation=3), B: entry(vcpu=4, generation=1)}
    assert api.post("/allocations", swapped).status == 204
