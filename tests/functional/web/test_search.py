"""The page that finds a place: where a request fits, or what would make it fit."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any
from urllib.parse import quote

import pytest

from tests.fixtures.plain_trees import make_provider

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def ask(page: Any, query: str) -> None:
    page.get_by_label("Query, or a URL with one").fill(query)
    page.get_by_role("button", name="Find a place").click()


def fits(capacity: Any) -> str:
    least, most = capacity["at_least"], capacity["at_most"]
    return f"Fits {most} more times" if least == most else f"Fits {least} to {most} more times"


def test_a_pasted_query_fills_the_form_and_marks_the_hosts_it_fits_on(
    open_page: OpenPage, site: Site
) -> None:
    query = "resources=VCPU:8,MEMORY_MB:8192&resources_GPU=VGPU:2&required_GPU=CUSTOM_GPU_TESLA_T4"
    page = open_page("#/search")
    ask(page, f"{site.url}/allocation_candidates?{query}")
    capacity = site("GET", f"/capacity?{query}")
    page.locator(
        ".summary", has_text=f"{fits(capacity)}, on {len(capacity['trees'])} hosts."
    ).wait_for()
    assert (
        page.locator("canvas")
        .get_attribute("aria-label")
        .startswith(f"Map of the fleet: {len(capacity['trees'])} of ")
    )
    group = page.get_by_role("group", name="Group _GPU")
    assert group.get_by_label("Resources").input_value() == "VGPU:2"
    candidates = page.get_by_role("group", name="First candidates")
    assert "VGPU 2 from GPU 0000:17:00.0" in candidates.inner_text()

    group.get_by_label("Resources").fill("VGPU=12")
    assert "resources_GPU=VGPU:12&required_GPU" in page.get_by_label("Query,").input_value()
    page.get_by_role("button", name="Find a place").click()
    fewer = site("GET", f"/capacity?{query.replace('VGPU:2', 'VGPU:12')}")
    page.locator(".summary", has_text=fits(fewer)).wait_for()
    assert fits(fewer) != fits(capacity)
    page.reload()
    page.locator(".summary", has_text=fits(fewer)).wait_for()
    assert violations(page) == []


def test_what_fits_nowhere_is_explained_with_buttons_that_try_what_would(
    open_page: OpenPage,
) -> None:
    query = "resources=DISK_GB:2100&required=!COMPUTE_NODE"
    page = open_page(f"#/search?q={quote(query, safe='')}")
    page.get_by_text("Fits on none of 1,0").wait_for()
    assert violations(page) == []
    page.get_by_role("button", name="with COMPUTE_NODE allowed").first.click()
    page.get_by_text("more time").first.wait_for()
    assert re.fullmatch(r"resources=DISK_GB:\d+", page.get_by_label("Query,").input_value())


def test_guests_to_move_are_listed_and_drawn_when_somebody_asks(
    open_page: OpenPage, site: Site
) -> None:
    trait = f"CUSTOM_{uuid.uuid4().hex[:12].upper()}"
    names = [f"{trait[7:]}-{number}" for number in range(2)]
    roots = [
        make_provider(site, name, {"VCPU": total}, [trait])
        for name, total in zip(names, (8, 4), strict=True)
    ]
    guest = site.claim({roots[0]: {"VCPU": 4}})

    def with_time(route: Any) -> None:
        """Leave a search beside other work the time that it needs for a proof."""
        question = {**route.request.post_data_json, "time_limit": 600}
        route.continue_(post_data=json.dumps(question))

    page = open_page(
        f"#/search?q={quote(f'resources=VCPU:6&required={trait}', safe='')}",
        prepare=lambda page: page.route("**/make_room", with_time),
    )
    page.get_by_role("button", name="Which guests to move?").click()
    page.locator(".summary", has_text=f"Move 1 guest, then it fits on {names[0]}.").wait_for()
    table = page.get_by_role("group", name="Guests to move")
    assert table.locator("tbody tr").inner_text().split("\t") == [guest, *names, "VCPU 4"]
    label = page.locator("canvas").get_attribute("aria-label")
    assert label.startswith("Map of the fleet: 1 move between 2 of ")
    assert violations(page) == []
    ask(page, f"resources=VCPU:9&required={trait}")
    page.get_by_text("VCPU:4 instead of 9").first.wait_for()
    page.get_by_role("button", name="Which guests to move?").click()
    page.get_by_text("No 3 moves of guests make room.").first.wait_for()
    ask(page, f"resources=VCPU:4&required={trait}")
    page.locator(".summary", has_text="more time").wait_for()
    assert page.get_by_role("button", name="Which guests to move?").count() == 0


def test_an_empty_request_is_not_sent_and_the_field_says_what_is_missing(
    open_page: OpenPage,
) -> None:
    page = open_page("#/search")
    page.get_by_role("button", name="Find a place").click()
    resources = page.get_by_label("Resources")
    assert "VCPU=4" in resources.evaluate("field => field.validationMessage")
    assert page.evaluate("location.hash") == "#/search"
    resources.fill("VCPU=1")
    page.get_by_role("button", name="Find a place").click()
    page.locator(".summary", has_text="Fits").wait_for()


def test_an_amount_that_is_free_and_forbidden_has_the_field_that_forbids_it(
    open_page: OpenPage, site: Site
) -> None:
    trait = "CUSTOM_ONE_AT_A_TIME"
    make_provider(site, f"one-{uuid.uuid4()}", {"VCPU": {"total": 8, "max_unit": 1}}, [trait])
    page = open_page(f"#/search?q={quote(f'resources=VCPU=8&required={trait}', safe='')}")
    page.get_by_text("Fits on none of 1,0").wait_for()
    table = page.get_by_role("group", name="Providers that lack room")
    row = table.locator("tbody tr").inner_text().split("\t")
    assert row[2:4] == ["8", "8"]
    assert row[-1].strip() == "max_unit 1"


def test_what_the_api_refuses_is_shown(open_page: OpenPage) -> None:
    page = open_page("#/search", complaints=["400"])
    ask(page, "resources=NO_SUCH_CLASS:1")
    assert "NO_SUCH_CLASS" in page.get_by_role("alert").inner_text()


def test_what_the_api_refuses_is_asked_again_only_when_there_are_new_names(
    open_page: OpenPage,
) -> None:
    waiting: list[Any] = []
    asked: list[str] = []

    def prepare(page: Any) -> None:
        page.route("**/changes*", lambda route: waiting.append(route))
        page.on("request", lambda request: asked.append(request.url))

    def answer(last: int, *kinds: str) -> None:
        """Answer the question about changes that waits, and wait for the next."""
        change = {"id": last, "at": "", "root_provider_uuid": OTHER, "kinds": kinds}
        document = {"oldest": 1, "last": last, "changes": [change] if kinds else []}
        while not waiting:
            page.wait_for_timeout(10)
        with page.expect_request(lambda request: f"after={last}" in request.url):
            waiting.pop().fulfill(json=document)

    page = open_page("#/search", complaints=["400"], prepare=prepare)
    answer(1)
    ask(page, "resources=NO_SUCH_CLASS:1")
    page.get_by_role("alert").wait_for()
    answer(2, "usage")
    answer(3, "names")
    assert len([url for url in asked if "/capacity?" in url]) == 2


UUID = "5a3f0e3e-4b5c-4a8b-9d8f-0123456789ab"
OTHER = "6b3f0e3e-4b5c-4a8b-9d8f-0123456789ab"


@pytest.mark.parametrize(
    ("query", "change", "expected"),
    [
        (
            "resources=VCPU:9,DISK_GB:1&resources_A=VCPU:9",
            {"group": "_A", "resource_class": "VCPU", "from": 9, "to": 4},
            "resources=VCPU:9,DISK_GB:1&resources_A=VCPU:4",
        ),
        ("required=A,B", {"group": "", "drop_trait": "A"}, "required=B"),
        ("required=A&required_X=A", {"group": "_X", "drop_trait": "A"}, "required=A"),
        ("required=in:B,A&required=A", {"group": "", "drop_trait": "in:A,B"}, "required=A"),
        ("required=A,!B", {"group": "", "allow_trait": "B"}, "required=A"),
        (f"member_of={UUID}&limit=1", {"group": "", "drop_aggregate": UUID}, "limit=1"),
        (f"root_member_of={UUID}&a=1", {"group": None, "drop_aggregate": UUID}, "a=1"),
        (
            f"member_of=!in:{UUID},{OTHER}",
            {"group": "", "allow_aggregate": UUID},
            f"member_of=!{OTHER}",
        ),
        (f"in_tree_B={UUID}&limit=1", {"group": "_B", "drop_in_tree": UUID}, "limit=1"),
        (
            "same_subtree=_A,_B&same_subtree=_A,_C",
            {"group": None, "drop_same_subtree": "_B,_A"},
            "same_subtree=_A,_C",
        ),
        ("group_policy=isolate&a=1", {"group": None, "drop_group_policy": "isolate"}, "a=1"),
        ("root_required=A,!B&a=1", {"group": None, "drop_root_required": "A,!B"}, "a=1"),
    ],
)
def test_every_change_that_an_explanation_proposes_can_be_made(
    modules: Any, query: str, change: dict[str, Any], expected: str
) -> None:
    assert modules("search/query.js", "changed", query, [change]) == expected
