"""Names are data: whatever they look like, they are shown as they are and nothing of them runs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.fixtures.allocations import claim_body
from tests.fixtures.plain_trees import make_provider
from tests.fixtures.sample_fleet import uuid_of

from .conftest import OpenPage
from .site import Site

SCRIPT = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
NAME = f"{SCRIPT}'&quot;</th></table>\u202e"
OWNER = "</td><svg onload=\"document.title='run'\">&lt;"


@pytest.fixture(scope="module")
def hostile(site: Site) -> str:
    """A host and a guest of such names; the guest."""
    host = uuid_of("hostile")
    make_provider(site, NAME, {"CUSTOM_HOSTILE": 4}, uuid=host)
    child = uuid_of("hostile child")
    make_provider(site, f"{NAME}_{SCRIPT}", {"VGPU": 4}, uuid=child, parent=host)
    guest = uuid_of("hostile guest")
    held = claim_body({host: {"CUSTOM_HOSTILE": 1}}, project_id=OWNER, user_id=OWNER)
    site("PUT", f"/allocations/{guest}", held)
    return guest


def shown_as_it_is(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for()
    assert page.locator("main :is(img, script, svg)").count() == 0
    assert page.title() != "run"


def test_names_of_providers_and_owners_are_shown_and_never_run(
    open_page: OpenPage, hostile: str
) -> None:
    host = uuid_of("hostile")
    page = open_page("#/fleet?class=CUSTOM_HOSTILE")
    shown_as_it_is(page, SCRIPT)
    page.locator("canvas").hover(position={"x": 5, "y": 5})
    assert SCRIPT in page.locator("#tip").inner_text()
    page.goto(page.url.partition("#")[0] + f"#/host/{host}")
    page.locator(".box h3").first.wait_for()
    shown_as_it_is(page, SCRIPT)
    page.locator(".held").last.hover()
    assert OWNER in page.locator("#tip").inner_text()
    assert page.locator("#tip :is(img, script, svg)").count() == 0
    page.goto(page.url.partition("#")[0] + f"#/consumer/{hostile}")
    shown_as_it_is(page, OWNER)
    page.goto(page.url.partition("#")[0] + f"#/changes?host={host}")
    page.locator("tbody").wait_for()
    shown_as_it_is(page, SCRIPT)
    query = quote("resources=CUSTOM_HOSTILE:1", safe="")
    page.goto(page.url.partition("#")[0] + f"#/search?q={query}")
    shown_as_it_is(page, SCRIPT)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"#/host/{quote(SCRIPT, safe='')}", "There is no provider <img"),
        (f"#/consumer/{quote(SCRIPT, safe='')}", "It holds nothing"),
        ("#/consumer/..", "It holds nothing"),
        ("#/host/..", "There is no provider"),
        ("#/host/%", "There is no provider"),
        ("#/__proto__/x", "VCPU in use"),
        (f"#/fleet?class={quote(SCRIPT, safe='')}&order=__proto__&trait=%3Cb%3E", "VCPU in use"),
    ],
)
def test_addresses_are_data_too(open_page: OpenPage, address: str, expected: str) -> None:
    page = open_page(address, complaints=["404", "400"])
    shown_as_it_is(page, expected)
