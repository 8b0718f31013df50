"""The page of what changed: who got what from how much to how much, live and searched."""

from __future__ import annotations

from typing import Any

from tests.fixtures.sample_fleet import uuid_of

from .accessibility import violations
from .conftest import OpenPage
from .site import Site


def test_changes_are_listed_with_amounts_and_who_made_them_as_they_happen_unless_paused(
    open_page: OpenPage, site: Site
) -> None:
    # of one host, as tests beside this one make more changes than the page shows
    page = open_page("#/changes?host=compute-00100")
    page.get_by_text("What changed").first.wait_for()
    consumer = site.claim({uuid_of("compute-00100"): {"DISK_GB": 3}})
    row = page.locator("tbody tr", has_text=consumer)
    row.wait_for()
    cells = [cell.strip() for cell in row.inner_text().split("\t")]
    assert cells[1:4] == ["compute-00100", consumer, "DISK_GB 0 → 3"]
    assert cells[4].startswith("admin")
    assert "req-" in cells[4]
    assert violations(page) == []
    page.get_by_role("button", name="Pause").click()
    with page.expect_response("**/changes?after=*"):
        site("DELETE", f"/allocations/{consumer}")
    assert row.count() == 1
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("DISK_GB 3 → 0").first.wait_for()


def test_what_is_being_read_when_a_person_pauses_is_not_shown(
    open_page: OpenPage, site: Site
) -> None:
    page = open_page("#/changes?host=compute-00103")
    consumer = site.claim({uuid_of("compute-00103"): {"DISK_GB": 3}})
    row = page.locator("tbody tr", has_text=consumer)
    row.wait_for()
    reads: list[Any] = []
    page.route("**/history?*", lambda route: reads.append(route))
    # or what another test changes has it read
    site("DELETE", f"/allocations/{consumer}")
    while not reads:
        page.wait_for_timeout(10)
    page.get_by_role("button", name="Pause").click()
    # the page follows the changes again when it has shown what it read
    with page.expect_request("**/changes?after=*"):
        reads[0].continue_()
    page.unroute("**/history?*")
    assert row.count() == 1
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("DISK_GB 3 → 0").first.wait_for()


def test_changes_are_searched_by_host_consumer_and_class(open_page: OpenPage, site: Site) -> None:
    one, other = (
        site.claim({uuid_of("compute-00101"): {"DISK_GB": 1, "VCPU": 1}}),
        site.claim({uuid_of("compute-00102"): {"VCPU": 2}}),
    )
    page = open_page("#/changes")
    rows = page.locator("tbody tr")

    def search(**texts: str) -> None:
        for label in ("Host,", "Consumer", "Class,"):
            page.get_by_label(label).fill(texts.get(label.rstrip(","), ""))
        page.get_by_role("button", name="Search").click()

    search(Consumer=one)
    page.locator("tbody tr:only-child", has_text=one).wait_for()
    search(Host="compute-00102")
    rows.filter(has_text=other).wait_for()
    assert rows.filter(has_text=one).count() == 0
    search(Host="compute-00101", Class="DISK_GB")
    rows.filter(has_text=one).wait_for()
    page.reload()
    rows.filter(has_text=one).wait_for()
    search(Class="CUSTOM_NONE")
    page.get_by_text("Nothing in the last 7 days.").wait_for()
    for consumer in (one, other):
        site("DELETE", f"/allocations/{consumer}")


def test_a_search_for_what_is_not_there_says_so(open_page: OpenPage) -> None:
    page = open_page("#/changes", complaints=["400"])
    page.get_by_label("Host,").fill("no-such-host")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("alert").filter(has_text="There is no host no-such-host").wait_for()
    page.get_by_label("Host,").fill("")
    page.get_by_label("Consumer").fill("not-a-uuid")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("alert").filter(has_text="not-a-uuid").wait_for()


def test_the_page_of_a_host_has_its_last_changes(open_page: OpenPage, site: Site) -> None:
    host = uuid_of("compute-00103")
    page = open_page(f"#/host/{host}")
    page.get_by_role("heading", name="What changed").wait_for()
    consumer = site.claim({host: {"VCPU": 1}})
    table = page.get_by_role("group", name="Changes, the newest first")
    table.get_by_text("VCPU 0 → 1").first.wait_for()
    assert consumer in table.inner_text()
    site("DELETE", f"/allocations/{consumer}")
    for _ in range(5):
        site("DELETE", f"/allocations/{site.claim({host: {'VCPU': 1}})}")
    page.get_by_role("link", name="All that changed of this host").click()
    page.get_by_role("cell", name=consumer).first.wait_for()
    assert page.locator("tbody tr").count() > 10
