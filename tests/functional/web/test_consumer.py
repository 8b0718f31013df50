"""The page of a consumer: where it sits, and what it holds."""

from __future__ import annotations

from tests.fixtures.sample_fleet import uuid_of

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def test_a_consumer_is_drawn_in_its_hosts_with_all_it_holds(
    open_page: OpenPage, site: Site
) -> None:
    first, second = uuid_of("gpu-10"), uuid_of("compute-00009")
    consumer = site.claim({first: {"DISK_GB": 5}, second: {"DISK_GB": 7}})
    page = open_page(f"#/consumer/{consumer}")
    page.locator(".host-drawing").nth(1).wait_for()
    assert sorted(page.locator("h2").all_inner_texts()) == ["compute-00009", "gpu-10"]
    assert sorted(page.locator("tbody tr").all_inner_texts()) == [
        "compute-00009\tcompute-00009\tDISK_GB 7",
        "gpu-10\tgpu-10\tDISK_GB 5",
    ]
    assert page.locator(".held.marked").count() == 2
    assert violations(page) == []
    site("DELETE", f"/allocations/{consumer}")
    page.get_by_text("It holds nothing, or does not exist.").wait_for()
