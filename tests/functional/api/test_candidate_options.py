"""Options about GET /allocation_candidates, from the configuration to the answer."""

from __future__ import annotations

from typing import Any

import pytest

from placement_server.metrics import metrics

from .candidate_world import PATH, ask
from .conftest import MakeApi
from .wsgi_client import Client

ONE_GPU = "resources=VGPU:1"


def gpu_hosts(api: Client, *counts: int) -> Client:
    """Hosts with so many GPUs of one unit each, named `host0`, `host1` and so on."""
    for number, count in enumerate(counts):
        host = api.provider(f"host{number}")
        for gpu in range(count):
            child = api.provider(
                f"host{number}-gpu{gpu}", parent_provider_uuid=host.rpartition("/")[2]
            )
            api.inventory(child, VGPU=1)
    return api


def hosts_in_order(api: Client, query: str) -> list[str]:
    """The hosts of the candidates, each of a single provider, in the order of the answer."""
    names = {
        provider["uuid"]: provider["name"].partition("-")[0]
        for provider in api.get("/resource_providers").json["resource_providers"]
    }
    requests = ask(api, query)["allocation_requests"]
    return [names[next(iter(request["allocations"]))] for request in requests]


def isolated(groups: int) -> str:
    resources = "&".join(f"resources_{number}=VGPU:1" for number in range(groups))
    return f"{resources}&group_policy=isolate"


def test_without_options_everything_is_found_breadth_first(api: Client) -> None:
    gpu_hosts(api, 3, 2)
    assert hosts_in_order(api, ONE_GPU) == ["host0", "host1", "host0", "host1", "host0"]


def test_a_maximum_takes_all_of_one_host_first(make_api: MakeApi) -> None:
    api = gpu_hosts(make_api(placement__max_allocation_candidates=4), 3, 2)
    assert hosts_in_order(api, ONE_GPU) == ["host0", "host0", "host0", "host1"]
    assert hosts_in_order(api, f"{ONE_GPU}&limit=2") == ["host0", "host0"]
    assert len(hosts_in_order(api, f"{ONE_GPU}&limit=100")) == 4


def test_the_strategy_makes_a_maximum_go_by_rounds(make_api: MakeApi) -> None:
    options: dict[str, Any] = {
        "placement__max_allocation_candidates": 4,
        "placement__allocation_candidates_generation_strategy": "breadth-first",
    }
    api = gpu_hosts(make_api(**options), 3, 2)
    assert hosts_in_order(api, ONE_GPU) == ["host0", "host1", "host0", "host1"]


@pytest.mark.parametrize("strategy", ["depth-first", "breadth-first"])
def test_without_a_maximum_the_strategy_changes_nothing(make_api: MakeApi, strategy: str) -> None:
    api = make_api(placement__allocation_candidates_generation_strategy=strategy)
    gpu_hosts(api, 3, 2)
    assert hosts_in_order(api, f"{ONE_GPU}&limit=3") == ["host0", "host1", "host0"]


def test_random_order_differs_from_request_to_request(make_api: MakeApi) -> None:
    ordered = gpu_hosts(make_api(), *[1] * 8)
    api = gpu_hosts(make_api(placement__randomize_allocation_candidates=True), *[1] * 8)
    first = [hosts_in_order(api, f"{ONE_GPU}&limit=1")[0] for _ in range(40)]
    # With a fair choice the chance of one host alone is 8 to the power of -39.
    assert len(set(first)) > 1
    assert {hosts_in_order(ordered, f"{ONE_GPU}&limit=1")[0] for _ in range(5)} == {"host0"}
    every = [tuple(hosts_in_order(api, ONE_GPU)) for _ in range(5)]
    assert {frozenset(pool) for pool in every} == {frozenset(f"host{n}" for n in range(8))}
    assert len(set(every)) > 1


def gave_up() -> float:
    (family,) = metrics.SEARCH_SECONDS.collect()
    (value,) = [
        sample.value
        for sample in family.samples
        if sample.name.endswith("_count") and "gave_up" in sample.labels.values()
    ] or [0.0]
    return value


def test_a_search_past_its_deadline_is_503_and_never_an_empty_list(make_api: MakeApi) -> None:
    """Ten groups on ten GPUs: 3,628,800 candidates, which nothing finds in a tenth of a second."""
    api = gpu_hosts(make_api(placement_server__search_deadline=0.1), 10)
    before = gave_up()
    answer = api.get(f"{PATH}?{isolated(10)}")
    assert answer.status == 503
    assert "gave up after 0.1 seconds with " in answer.detail
    assert "search_deadline" in answer.detail
    assert gave_up() == before + 1
    assert len(ask(api, f"{isolated(10)}&limit=5")["allocation_requests"]) == 5


def test_a_maximum_does_not_lift_the_deadline(make_api: MakeApi) -> None:
    options: dict[str, Any] = {
        "placement_server__search_deadline": 0.1,
        "placement__max_allocation_candidates": 3_000_000,
    }
    answer = gpu_hosts(make_api(**options), 10).get(f"{PATH}?{isolated(10)}")
    assert (answer.status, "after 0.1 seconds" in answer.detail) == (503, True)


def test_a_search_that_holds_too_much_memory_gives_up_with_503(make_api: MakeApi) -> None:
    api = gpu_hosts(make_api(placement_server__search_memory=1), 10)
    answer = api.get(f"{PATH}?{isolated(7)}")
    assert answer.status == 503
    assert "hold more than 1 MiB of memory" in answer.detail
    assert "search_memory" in answer.detail
    assert "retry-after" not in answer.headers
    assert ask(api, f"{isolated(7)}&limit=10")["allocation_requests"]


def test_a_search_for_which_the_worker_has_no_memory_may_be_tried_again(make_api: MakeApi) -> None:
    api = gpu_hosts(make_api(placement_server__worker_search_memory=8), 10)
    answer = api.get(f"{PATH}?{isolated(7)}")
    assert answer.status == 503
    assert "worker_search_memory" in answer.detail
    assert int(answer.headers["retry-after"]) > 0
    assert ask(api, f"{isolated(7)}&limit=10")["allocation_requests"]


def test_an_explanation_is_bound_like_a_search(make_api: MakeApi) -> None:
    api = gpu_hosts(make_api(placement_server__heavy_search_seconds=0.0), 2)
    turns_given_back: list[int] = []
    answer = api.get(
        f"/candidate_explanation?{isolated(2)}",
        version=None,
        headers={"OpenStack-API-Version": "placement 1.39, placement-ext 1.0"},
        environ={"placement_server.give_turn_back": lambda: turns_given_back.append(1)},
    )
    assert answer.status == 200
    assert turns_given_back == [1]
