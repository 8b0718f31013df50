"""Pages that know hosts which are disabled, agents that are dead, and devices that are gone."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from placement_server.api.extensions.agent_reports import HEADER
from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import eventually

from .accessibility import violations
from .conftest import OpenPage
from .site import Site

DISABLED = "COMPUTE_STATUS_DISABLED"
PLACE = {"address": "10.0.0.7", "machine_id": "m", "boot_id": "b", "state_path": "/var"}


def report(site: Site, root: str, *, period: float = 3600, reason: str = "", **more: Any) -> None:
    """Report as the agent of a host does."""
    said = {
        "period": period,
        "bus": {"state": "up", "since": None, "why": ""},
        "disabled_reason": reason,
        "trouble": "",
        "place": PLACE,
        **more,
    }
    site("GET", f"/provider_trees/{root}", **{HEADER: json.dumps(said)})

    def is_stored() -> bool:
        [stored] = site("GET", f"/agent_reports?root={root}")["agent_reports"] or [None]
        return stored is not None and (period > 0 or stored["silent"])

    eventually(is_stored, "the report")


def host(site: Site, name: str, vcpus: int, *traits: str) -> str:
    return make_provider(site, name, {"VCPU": vcpus}, ["COMPUTE_NODE", *traits])


def row(page: Any, name: str) -> str:
    return str(page.locator("tbody tr", has_text=name).inner_text())


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_disabled_hosts_and_dead_agents_are_counted_named_and_left_out(
    open_page: OpenPage, site: Site, colours: str
) -> None:
    mark = f"mark{uuid.uuid4().hex[:8]}"
    trait = f"CUSTOM_{mark.upper()}"
    site("PUT", f"/traits/{trait}")
    up, off, dead = (
        host(site, f"{mark}-{name}", 900, trait, *traits)
        for name, traits in (("up", ()), ("off", (DISABLED,)), ("dead", ()))
    )
    report(site, up)
    report(site, off, reason="fan")
    report(site, dead, period=0)
    page = open_page(f"#/fleet?text={mark}", color_scheme=colours)
    summary = page.locator(".summary", has_text="host")
    assert summary.inner_text().endswith(" full, 1 disabled, 1 with a silent agent.")
    assert "disabled: fan" in row(page, f"{mark}-off")
    assert "agent silent since" in row(page, f"{mark}-dead")
    assert "agent" not in row(page, f"{mark}-up").partition(f"{mark}-up")[2]
    assert violations(page) == []
    for state, names in (
        ("disabled", ["off"]),
        ("silent", ["dead"]),
        ("enabled", ["dead", "up"]),
        ("troubled", ["dead", "off"]),
    ):
        page.get_by_label("State").select_option(state)
        shown = page.locator("tbody th").all_inner_texts()
        assert shown == [f"{mark}-{name}" for name in names]

    page.goto(f"{site.pages}#/host/{off}")
    page.locator(".summary", has_text="disabled: fan").wait_for()
    page.goto(f"{site.pages}#/host/{dead}")
    page.locator(".summary", has_text="agent silent since").wait_for()
    assert PLACE["address"] in page.locator(".facts").inner_text()

    page.goto(f"{site.pages}#/search?q=resources%3DVCPU%3A900%26required%3D{trait}")
    page.locator(".summary", has_text="Fits 2 more times, on 2 hosts.").wait_for()
    page.get_by_label("Disabled hosts, too").check()
    page.locator(".summary", has_text="Fits 3 more times, on 3 hosts.").wait_for()
    page.reload()
    page.locator(".summary", has_text="Fits 3 more times, on 3 hosts.").wait_for()
    assert violations(page) == []
    for root in (up, off, dead):
        site("DELETE", f"/resource_providers/{root}")


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_page_of_a_host_shows_cores_and_their_guests(
    open_page: OpenPage, site: Site, colours: str
) -> None:
    root = host(site, f"cores{uuid.uuid4().hex[:8]}", 8)
    guest = site.claim({root: {"VCPU": 1}})
    core, half = [[0, guest[:8]], [4, guest[:8]]], [[1, "ffffffff"], [5, None]]
    report(site, root, cells=[{"id": 0, "cores": [core, half]}])
    page = open_page(f"#/host/{root}", color_scheme=colours)
    box = page.locator(".box.cores")
    assert "Cell 0" in box.inner_text()
    assert "(0 4)(1 5)" in box.inner_text()
    label = f"CPUs of cell 0: 0 by {guest}, 4 by {guest}, 1 by ffffffff, 5 free"
    assert box.get_by_role("img").get_attribute("aria-label") == label
    assert [box.locator(kind).count() for kind in (".core", ".held", ".other", ".free")] == [
        *(2, 2, 1, 1)
    ]
    assert violations(page) == []
    box.locator(".held").first.click()
    page.wait_for_url(f"**#/consumer/{guest}")
    site("DELETE", f"/allocations/{guest}")
    site("DELETE", f"/resource_providers/{root}")


def test_where_only_disabled_hosts_fit_a_button_brings_them_in(
    open_page: OpenPage, site: Site
) -> None:
    off = host(site, f"off{uuid.uuid4().hex[:8]}", 901, DISABLED)
    page = open_page("#/search?q=resources%3DVCPU%3A901")
    page.locator(".summary", has_text="Fits on none").wait_for()
    page.get_by_role("button", name="without root_required").click()
    page.locator(".summary", has_text="Fits 1 more time, on 1 host.").wait_for()
    assert page.get_by_label("Disabled hosts, too").is_checked()
    site("DELETE", f"/resource_providers/{off}")


def test_a_device_that_is_gone_is_named_with_who_holds_it(open_page: OpenPage, site: Site) -> None:
    name = f"host{uuid.uuid4().hex[:8]}"
    root = host(site, name, 4)
    device = make_provider(site, f"{name}_pci_0000_82_00_0", {"PGPU": 1}, parent=root)
    path = f"/resource_providers/{device}"
    holder = site.claim({device: {"PGPU": 1}})
    # as the agent leaves it
    generation = site("GET", path)["generation"]
    inventory = {
        "resource_provider_generation": generation,
        "inventories": {"PGPU": {"total": 1, "reserved": 1}},
    }
    site("PUT", f"{path}/inventories", inventory)
    site("PUT", "/traits/CUSTOM_DEVICE_MISSING")
    traits = {"resource_provider_generation": generation + 1, "traits": ["CUSTOM_DEVICE_MISSING"]}
    site("PUT", f"{path}/traits", traits)
    page = open_page(f"#/host/{root}")
    figure = page.locator(".box.device .figure")
    assert f"gone, held by {holder}" in figure.inner_text()
    assert "reserved" not in figure.inner_text()
    assert figure.locator(".square").count() == 1
    assert "gone, but held: GPU 0000:82:00.0" in page.locator(".summary").inner_text()
    page.goto(f"{site.pages}#/fleet?text={name}")
    page.locator("tbody tr", has_text="a device is gone, but held").wait_for()
