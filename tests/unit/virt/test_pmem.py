"""Persistent memory as classes of the root, and guests that hold some."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.claims.units import holdings, is_visible
from compute_agent.discovery.facts import PmemNamespace
from compute_agent.provider_tree import ProviderTree
from compute_agent.state.claim import AssignedUnit
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.guest_checks import device_faults
from compute_agent.virt.layout import LayoutOptions, lay_out
from compute_agent.virt.layout.application import Ratios, apply_layout, identify
from compute_agent.virt.layout.pmem import parse_pmem_namespaces

MACHINE = fake_topology("host1", MachineSize(cells=1))
ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
LABELS = parse_pmem_namespaces(["128G:ns0|ns1", "6GB:ns2"])
NAMESPACES = tuple(PmemNamespace(f"ns{n}", 1 << 30, 4096, f"/dev/dax{n}.0") for n in range(3))
OPTIONS = LayoutOptions(pmem=LABELS)
GUEST = "7d3b1d3e-6c43-4a86-9a1c-0d7b0a1d2f01"


def reported(namespaces: tuple[PmemNamespace, ...] | None, fault: str | None = None) -> dict:
    topology = replace(MACHINE, pmem=namespaces, pmem_fault=fault)
    layout = lay_out("host1", topology, OPTIONS)
    totals = {rc: record.total for rc, record in layout.root.inventory.items() if "PMEM" in rc}
    return {"totals": totals, "units": layout.root.units, "errors": layout.errors}


def test_each_label_is_a_class_whose_units_are_the_namespaces() -> None:
    shown = reported(NAMESPACES)
    assert shown["totals"] == {"CUSTOM_PMEM_NAMESPACE_128G": 2, "CUSTOM_PMEM_NAMESPACE_6GB": 1}
    assert shown["units"]["CUSTOM_PMEM_NAMESPACE_128G"] == ("ns0", "ns1")
    assert shown["errors"] == ()


def test_a_namespace_that_the_machine_lacks_is_an_error_and_not_counted() -> None:
    shown = reported(NAMESPACES[:2])
    assert shown["totals"] == {"CUSTOM_PMEM_NAMESPACE_128G": 2}
    [error] = shown["errors"]
    assert "names ns2, which `ndctl list -X` does not print; it prints ns0, ns1" in error


def test_a_namespace_that_no_guest_can_map_is_an_error() -> None:
    shown = reported((*NAMESPACES[:2], replace(NAMESPACES[2], align_bytes=None)))
    [error] = shown["errors"]
    assert "ns2, whose alignment" in error
    assert "devdax" in error


def test_namespaces_that_cannot_be_listed_stay_counted_with_an_error() -> None:
    shown = reported(None, "ndctl list -X failed: status 1")
    assert shown["totals"] == {"CUSTOM_PMEM_NAMESPACE_128G": 2, "CUSTOM_PMEM_NAMESPACE_6GB": 1}
    assert "ndctl list -X failed: status 1" in shown["errors"][0]


def test_a_label_that_is_gone_takes_its_class_away_unless_it_is_held() -> None:
    tree = ProviderTree()
    tree.new_root("host1", ROOT, 1)
    before = replace(MACHINE, pmem=NAMESPACES)
    for topology, options, held in (
        (before, OPTIONS, {}),
        (before, LayoutOptions(), {"CUSTOM_PMEM_NAMESPACE_6GB": 1}),
    ):
        layout = lay_out("host1", topology, options)
        identities = identify(tree, ROOT, layout)
        apply_layout(tree, layout, identities, Ratios(options.ratios), lambda _uuid, h=held: h)
    left = {rc: r["reserved"] for rc, r in tree.data(ROOT).inventory.items() if "PMEM" in rc}
    assert left == {"CUSTOM_PMEM_NAMESPACE_6GB": 1}


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (["ns0"], "'ns0' is not LABEL:NAMESPACE"),
        ([":ns0"], "is not LABEL"),
        (["128G:ns0|"], "is not LABEL"),
        (["128G:ns0", "128g:ns1"], "CUSTOM_PMEM_NAMESPACE_128G twice"),
        (["128G:ns0", "6GB:ns0"], "ns0 twice"),
        (["128G:ns0|ns0"], "ns0 twice"),
    ],
)
def test_options_that_contradict_themselves_are_refused(entries: list[str], reason: str) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=reason):
        parse_pmem_namespaces(entries)


def test_guests_with_memory_that_no_label_offers_are_named() -> None:
    guests = {GUEST: InstanceDevices(pmem=("ns0", "ns7"))}
    [fault] = device_faults(guests, (), LABELS)
    assert fault == (
        f"guest {GUEST} holds persistent memory ns7, which [libvirt]pmem_namespaces does not have"
    )


def test_a_claim_knows_which_namespace_a_guest_has() -> None:
    units = [AssignedUnit(ROOT, "CUSTOM_PMEM_NAMESPACE_128G", f"ns{n}") for n in range(2)]
    seen = holdings({}, {GUEST: InstanceDevices(pmem=("ns1",))}, units)
    assert seen == {GUEST: frozenset({units[1]})}
    assert is_visible(units[0])
