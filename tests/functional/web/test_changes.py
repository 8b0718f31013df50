"""The page of what changed: a live list."""

from __future__ import annotations

from tests.fixtures.sample_fleet import uuid_of

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def test_changes_are_listed_as_they_happen_unless_paused(open_page: OpenPage, site: Site) -> None:
    page = open_page("#/changes")
    page.get_by_label("Of what").select_option("usage")
    first = page.locator("tbody tr").first
    first.wait_for()
    consumer = site.claim({uuid_of("compute-00100"): {"DISK_GB": 1}})
    page.locator("tbody tr", has_text="compute-00100").first.wait_for()
    assert first.inner_text().split("\t")[1:] == ["compute-00100", "allocations"]
    assert violations(page) == []
    page.get_by_role("button", name="Pause").click()
    site("DELETE", f"/allocations/{consumer}")
    with page.expect_response("**/fleet?root=*"):  # the name of the host that changed
        consumer = site.claim({uuid_of("compute-00101"): {"DISK_GB": 1}})
    row = page.locator("tbody tr", has_text="compute-00101")
    assert row.count() == 0
    page.get_by_role("button", name="Go on").click()
    row.first.wait_for()
    site("DELETE", f"/allocations/{consumer}")
