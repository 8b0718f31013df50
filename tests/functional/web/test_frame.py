"""The frame around all pages: moving between them, and what happens while the server is away."""

from __future__ import annotations

from .conftest import OpenPage


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


def test_an_outage_of_the_server_is_shown_and_the_page_goes_on_after_it(
    open_page: OpenPage,
) -> None:
    page = open_page("#/fleet?text=gpu-01", complaints=["503"])
    summary = page.locator(".summary", has_text="1 of")
    summary.wait_for()
    away = "**/-/web/fleet*"
    page.route("**/changes*", lambda route: route.fulfill(status=503, json={}))
    page.route(away, lambda route: route.fulfill(status=503, json={}))
    page.reload()
    notice = page.get_by_text("No answer from the server")
    notice.wait_for()
    page.unroute("**/changes*")
    page.unroute(away)
    summary.wait_for()
    assert notice.count() == 0
