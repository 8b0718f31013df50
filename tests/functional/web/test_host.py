"""The page of a host: what is drawn of its cells, devices and pages, and who holds it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.fixtures.sample_fleet import DEVICES, uuid_of

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def figure(page: Any, box: str, title: str) -> Any:
    """The figure of an amount in the innermost box with such a title."""
    return (
        page.locator(f".box:has(> :is(h3, h4):text('{box}')) > .figure")
        .filter(has=page.locator(f".figure-title > span:text-is('{title}')"))
        .locator("[role=img]")
    )


def squares(page: Any, box: str, title: str) -> list[str]:
    """The kinds of the squares of an amount, in order."""
    drawn = figure(page, box, title).locator(".square")
    kinds = ("held", "free", "reserved", "broken")
    classes = [str(mark.get_attribute("class")).split() for mark in drawn.all()]
    return [next(kind for kind in kinds if kind in names) for names in classes]


def test_cells_devices_and_pages_are_drawn_with_what_is_held_of_them(open_page: OpenPage) -> None:
    page = open_page(f"#/host/{uuid_of('gpu-04')}")
    cells = page.locator(".cell")
    cells.first.wait_for()
    assert cells.locator("> h3").all_inner_texts() == ["NUMA0", "NUMA1"]
    assert squares(page, "NUMA0", "VCPU") == ["held"] * 20 + ["free"] * 12
    assert squares(page, "NUMA1", "PCPU") == ["held"] * 8
    assert squares(page, "GPU 0000:17:00.0", "VGPU") == ["held"] * 7 + ["free"] * 9
    assert squares(page, "GPU 0000:84:00.0", "VGPU") == ["broken"] * 16
    assert squares(page, "Port 0000:81:00.0", "SRIOV_NET_VF") == ["held"] * 3 + ["free"] * 5
    assert page.locator(".is-broken > h4").inner_text() == "GPU 0000:84:00.0 TESLA T4"
    pages = figure(page, "NUMA1", "MEMORY_MB in pages of 1 GiB")
    assert pages.get_attribute("aria-label").startswith(
        "MEMORY_MB in pages of 1 GiB: 2,048 of 4,096 (2 of 4 GiB) in use: 2,048 by "
    )
    widths = pages.locator(".part").evaluate_all("parts => parts.map(part => part.style.width)")
    assert widths == ["50%", "0%", "50%", "0%"]
    memory = figure(page, "NUMA0", "MEMORY_MB")
    assert "256 reserved" in memory.get_attribute("aria-label")


def test_hover_says_who_holds_a_unit_and_marks_all_it_holds(open_page: OpenPage) -> None:
    page = open_page(f"#/host/{uuid_of('gpu-02')}")
    guest = uuid_of("gpu-02 guest 1")
    part = page.locator(f".square.held[data-consumer='{guest}']")
    part.first.hover()
    tip = page.locator("#tip")
    assert guest in tip.inner_text()
    assert "INSTANCE of project demo" in tip.inner_text()
    assert "VGPU: 4" in tip.inner_text()
    marked = page.locator(".held.marked")
    of_guest = page.locator(f".held[data-consumer='{guest}']")
    assert marked.count() == of_guest.count() == 8 + 4 + 2
    page.mouse.move(5, 5)
    assert marked.count() == 0
    page.get_by_role("group", name="Consumers").get_by_role("link", name=guest).focus()
    assert marked.count() == of_guest.count()
    part.first.click()
    page.wait_for_url(f"**/#/consumer/{guest}")


def test_a_claim_made_elsewhere_appears_and_goes(open_page: OpenPage, site: Site) -> None:
    host = uuid_of("gpu-06")
    page = open_page(f"#/host/{host}")
    page.locator(".cell").first.wait_for()
    summary = page.get_by_text("All providers, with their traits")
    summary.focus()
    # of no class that the searches beside this test count
    consumer = site.claim({uuid_of(f"gpu-06{DEVICES['port0']}"): {"SRIOV_NET_VF": 3}})
    held = page.locator(f".square.held[data-consumer='{consumer}']")
    held.nth(2).wait_for()
    assert held.count() == 3
    assert summary.evaluate("summary => summary === document.activeElement")
    site("DELETE", f"/allocations/{consumer}")
    held.first.wait_for(state="detached")


def test_a_host_that_does_not_exist_is_reported(open_page: OpenPage) -> None:
    page = open_page("#/host/00000000-0000-4000-8000-00000000dead", complaints=["404"])
    page.get_by_text("There is no provider 00000000-0000-4000-8000-00000000dead").wait_for()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_everyone_can_use_the_host(open_page: OpenPage, colours: str) -> None:
    page = open_page(f"#/host/{uuid_of('gpu-08')}", color_scheme=colours)
    page.locator(".cell").first.wait_for()
    page.get_by_text("All providers, with their traits").click()
    assert violations(page) == []


def test_thousands_of_holders_are_drawn_and_listed_up_to_a_bound(
    open_page: OpenPage, site: Site
) -> None:
    name, totals = f"store-{uuid.uuid4()}", {"DISK_GB": 2000, "VCPU": 1}
    root = make_provider(site, name, totals, ["COMPUTE_NODE"])
    site.claim_often({root: {"DISK_GB": 1}}, 1000)
    page = open_page(f"#/host/{root}")
    page.get_by_text("and 500 more consumers").wait_for()
    assert page.locator("table").first.locator("tbody tr").count() == 500
    disk = figure(page, "Whole host", "DISK_GB")
    assert disk.locator(".part.held").count() == 200
    assert disk.locator(".part.other").evaluate("part => part.style.width") == "40%"
    assert disk.get_attribute("aria-label").endswith("the rest by 800 more")
