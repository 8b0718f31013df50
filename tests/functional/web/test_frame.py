"""The frame around all pages: moving between them, and what happens while the server is away."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.fixtures.sample_fleet import uuid_of

from .conftest import VIEWPORT, OpenPage
from .site import Site


def test_the_keyboard_leads_past_the_navigation_and_from_page_to_page(open_page: OpenPage) -> None:
    page = open_page("#/fleet")
    page.locator(".summary", has_text="hosts").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert page.url.endswith("#/fleet")
    page.get_by_role("link", name="What changed").press("Enter")
    page.get_by_role("heading", name="What changed").wait_for()
    assert page.title() == "What changed"
    current = page.locator("nav [aria-current=page]")
    assert current.all_inner_texts() == ["What changed"]
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize("address", ["#/host", "#/host/", "#/consumer", "#/nothing-like-it"])
def test_an_address_without_a_thing_to_show_leads_to_the_fleet(
    open_page: OpenPage, address: str
) -> None:
    page = open_page(address)
    page.locator(".summary", has_text="hosts").wait_for()
    assert page.locator("nav [aria-current=page]").all_inner_texts() == ["Fleet"]


def test_an_outage_of_the_server_is_shown_and_the_page_goes_on_after_it(
    open_page: OpenPage,
) -> None:
    page = open_page(f"#/host/{uuid_of('gpu-11')}", complaints=["503"])
    cell = page.locator(".cell").first
    cell.wait_for()
    of_api = re.compile(r"/(changes(\?|$)|provider_trees/)")
    page.route(of_api, lambda route: route.fulfill(status=503, json={}))
    page.reload()
    notice = page.get_by_text("What is shown may be old; trying again.")
    notice.wait_for()
    assert cell.count() == 0
    page.unroute(of_api)
    cell.wait_for()
    notice.wait_for(state="detached")


def test_a_page_that_was_shown_before_an_outage_reads_no_more_than_what_changed(
    open_page: OpenPage, site: Site
) -> None:
    page = open_page("#/fleet?text=gpu-01", complaints=["ERR_FAILED"])
    summary = page.locator(".summary", has_text="1 of")
    summary.wait_for()
    reads: list[str] = []
    page.on("request", lambda request: reads.append(request.url))
    waiting = re.compile(r"/changes\?after=")
    page.route(waiting, lambda route: route.abort())
    # the request that waits was sent before
    consumer = site.claim({uuid_of("compute-00103"): {"DISK_GB": 1}})
    notice = page.get_by_text("No answer from the server. What is shown may be old")
    notice.wait_for()
    page.unroute(waiting)
    notice.wait_for(state="detached")
    site("DELETE", f"/allocations/{consumer}")
    assert not [url for url in reads if url.endswith("/fleet")]


def test_the_cloud_is_named_in_title_and_header_and_the_page_says_how_old_it_is(
    open_page: OpenPage, site: Site
) -> None:
    def prepare(page: Any) -> None:
        def document(route: Any) -> None:
            answer = route.fetch()
            body = answer.text().replace('data-cloud=""', 'data-cloud="Paris &lt;1&gt;"')
            route.fulfill(response=answer, body=body)

        page.route(site.pages, document)

    page = open_page("#/fleet", prepare=prepare)
    page.locator(".summary", has_text="in use").wait_for()
    assert page.title() == "Fleet · Paris <1>"
    assert page.locator("#cloud").inner_text() == "Paris <1>"
    page.get_by_text(re.compile(r"^Updated \d+ s ago$")).wait_for()


def test_on_a_telephone_rows_are_cards_and_nothing_is_beside_the_page(open_page: OpenPage) -> None:
    page = open_page("#/fleet?text=gpu-0")
    page.locator("tbody tr").first.wait_for()
    try:
        page.set_viewport_size({"width": 390, "height": 844})
        table = page.get_by_role("group", name="Table of hosts")
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
        used = table.locator("tbody tr").first.locator("td[data-title=Used]")
        assert used.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Used"'
        assert page.evaluate("document.documentElement.scrollWidth") == 390
    finally:
        page.set_viewport_size(VIEWPORT)


def test_a_few_hosts_have_cells_with_their_names(open_page: OpenPage) -> None:
    page = open_page("#/fleet?text=gpu-0")
    page.locator("tbody tr").first.wait_for()
    page.locator("canvas").hover(position={"x": 190, "y": 40})
    assert page.locator("#tip").inner_text().startswith("gpu-01")
