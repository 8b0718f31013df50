"""Sentences of the specifications that the API does not follow to the letter."""

from __future__ import annotations

import pytest

from .wsgi_client import Client

HOST = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"


@pytest.mark.parametrize(("amount", "status"), [(5, 409), (10, 204), (15, 409), (20, 204)])
def test_steps_count_from_0_and_not_from_the_smallest_amount(
    api: Client, amount: int, status: int
) -> None:
    path = api.provider("host", uuid=HOST)
    record = {"resource_class": "VCPU", "total": 40, "min_unit": 5, "step_size": 10}
    assert api.post(f"{path}/inventories", record).status == 201
    consumer = f"{amount:08d}-0000-4000-8000-0000000000cc"
    assert api.claim(consumer, held={HOST: {"VCPU": amount}}).status == status


def test_the_unsuffixed_group_needs_resources_where_a_suffixed_one_does_not(api: Client) -> None:
    api.provider("host", uuid=HOST)
    refused = api.get("/allocation_candidates?required=CUSTOM_X&resources1=VCPU:1")
    assert refused.status == 400
    path = "/allocation_candidates?resources1=VCPU:1&required2=HW_CPU_X86_AVX2"
    assert api.get(f"{path}&same_subtree=1,2&group_policy=none").status == 200


def test_a_semicolon_separates_no_parameters_of_a_query(api: Client) -> None:
    api.provider("a;uuid=x", uuid=HOST)
    (provider,) = api.get("/resource_providers?name=a;uuid=x").json["resource_providers"]
    assert provider["uuid"] == HOST


def test_a_line_break_at_the_end_of_a_path_belongs_to_it(api: Client) -> None:
    path = api.provider("host", uuid=HOST)
    for url in ("/traits%0A", f"{path}%0A", f"{path}/inventories%0A"):
        assert api.get(url).status == 404
