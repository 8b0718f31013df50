"""Filters that look at candidates: NUMA nodes of the guest, devices of aliases; and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.errors import InvalidConfiguration
from compute_agent.fitting.host import PlanOptions
from compute_agent.fitting.planner import plan
from compute_agent.request.errors import InvalidRequest
from compute_agent.request.pci_aliases import PciAlias, pci_aliases
from compute_agent.request.spec import GuestCell, PciRequest, RequestedNetwork, RequestSpec
from compute_agent.scheduler.filters import numa_topology, registry
from compute_agent.scheduler.filters.host_filter import FilterOptions
from compute_agent.scheduler.fleet.announcements import Announcement
from compute_agent.scheduler.host_state import HostState
from compute_agent.scheduler.placement.candidates import Candidate, ProviderSummary
from compute_agent.scheduler.search.prefilters import PrefilterContext, device_types
from tests.unit.scheduler.specs import request_of, spec

NUMA = "HW_NUMA_ROOT"


def provider(uuid: str, parent: str | None = None, *traits: str) -> ProviderSummary:
    return ProviderSummary(uuid, "host", parent, traits=frozenset(traits))


NESTED = {
    summary.uuid: summary
    for summary in (
        provider("host"),
        provider("cell0", "host", NUMA),
        provider("cell1", "host", NUMA),
        provider("pages0", "cell0"),
        provider("pages1", "cell1"),
        provider("card0", "cell0"),
        provider("card1", "cell1"),
        provider("card", "host"),
    )
}


WITHOUT_CELLS = {uuid: summary._replace(traits=frozenset()) for uuid, summary in NESTED.items()}


def nested(*mappings: dict[str, str], announced: dict[str, Any] | None = None) -> HostState:
    """A host and a candidate for each of `mappings`, suffix to provider.

    Its cells are providers, two, or those that are announced.
    """
    candidates = tuple(
        Candidate("host", {}, {suffix: (uuid,) for suffix, uuid in mapping.items()})
        for mapping in mappings
    )
    announcement = Announcement("s", 0.0, attributes=announced) if announced is not None else None
    providers = NESTED if announced is None else WITHOUT_CELLS
    return HostState("host", "host", providers, candidates, announcement=announcement)


def left(name: str, host: HostState, asked: RequestSpec, **options: Any) -> list[dict[str, str]]:
    """The mappings of the candidates that a filter leaves."""
    [made] = registry.make([name], options=FilterOptions(**options))
    return [
        {suffix: uuid for suffix, (uuid,) in candidate.mappings.items()}
        for passed in made.filter_all([host], asked)
        for candidate in passed.candidates
    ]


TWO_NODES = spec({"hw:numa_nodes": "2"})


def test_two_nodes_of_a_guest_are_on_two_cells() -> None:
    apart = {"_NUMA0": "cell0", "_NUMA1": "cell1"}
    together = {"_NUMA0": "cell0", "_NUMA1": "cell0"}
    assert left("NUMATopologyFilter", nested(together, apart), TWO_NODES) == [apart]
    assert left("NUMATopologyFilter", nested(together), TWO_NODES) == []


def test_huge_pages_are_below_the_cell_of_their_node() -> None:
    near = {"_NUMA0": "cell0", "_PAGES0": "pages0"}
    far = {"_NUMA0": "cell0", "_PAGES0": "pages1"}
    asked = spec({"hw:mem_page_size": "2048"})
    assert left("NUMATopologyFilter", nested(far, near), asked) == [near]


FLAT = {"": "host"}


def cell(vcpu: int = 4, pcpu: int = 0, memory_mb: int = 512, **more: Any) -> dict[str, Any]:
    return {"vcpu": vcpu, "pcpu": pcpu, "memory_mb": memory_mb, **more}


@pytest.mark.parametrize(
    ("asked", "cells", "fits"),
    [
        (TWO_NODES, [cell(), cell()], True),
        (TWO_NODES, [cell(vcpu=8, memory_mb=8192)], False),
        (TWO_NODES, [cell(), cell(memory_mb=255)], False),
        (TWO_NODES, [cell(vcpu=0), cell(), cell()], True),
        (TWO_NODES, None, True),
        (spec(), [cell(vcpu=0)], True),
        (spec({"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated"}), [cell(pcpu=1)], False),
        (spec({"hw:numa_nodes": "1", "hw:cpu_policy": "dedicated"}), [cell(pcpu=2)], True),
        (
            # the small node fits on both cells, the large one on the second only
            spec(
                {
                    "hw:numa_nodes": "2",
                    "hw:numa_cpus.0": "0",
                    "hw:numa_cpus.1": "1",
                    "hw:numa_mem.0": "112",
                    "hw:numa_mem.1": "400",
                }
            ),
            [cell(memory_mb=399), cell(memory_mb=400)],
            True,
        ),
        (
            spec(guest_cells=(GuestCell(2, 0, 512),)),
            [cell(memory_mb=511), cell(memory_mb=511)],
            False,
        ),
    ],
)
def test_on_a_flat_host_the_nodes_fit_on_the_cells_that_the_agent_announces(
    asked: RequestSpec, cells: list[dict[str, Any]] | None, fits: bool
) -> None:
    announced = None if cells is None else {"cells": cells}
    found = left("NUMATopologyFilter", nested(FLAT, announced=announced), asked)
    assert found == ([FLAT] if fits else [])


@pytest.mark.parametrize(
    ("network", "cells", "fits"),
    [
        (RequestedNetwork(physnet="a"), [cell(physnets=["a"]), cell(vcpu=0)], True),
        (RequestedNetwork(physnet="a"), [cell(vcpu=0, physnets=["a"]), cell()], False),
        (RequestedNetwork(physnet="b"), [cell(vcpu=0, physnets=["a"]), cell()], True),
        (RequestedNetwork(is_tunneled=True), [cell(vcpu=0, tunneled=True), cell()], False),
        (RequestedNetwork(is_tunneled=True), [cell(tunneled=True), cell(vcpu=0)], True),
    ],
)
def test_a_guest_is_on_a_cell_near_its_networks(
    network: RequestedNetwork, cells: list[dict[str, Any]], fits: bool
) -> None:
    asked = spec({"hw:numa_nodes": "1"}, requested_networks=(network,))
    found = left("NUMATopologyFilter", nested(FLAT, announced={"cells": cells}), asked)
    assert found == ([FLAT] if fits else [])


def test_a_host_of_which_the_fit_is_not_decided_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        numa_topology,
        "plan",
        lambda host, guest: plan(host, guest, PlanOptions(budget=0, limit=0)),
    )
    host = nested(FLAT, announced={"cells": [cell(), cell()]})
    assert left("NUMATopologyFilter", host, TWO_NODES) == []
    text = "could not be decided within 0 steps"
    assert text in caplog.text
    assert text in numa_topology.NUMATopologyFilter().reason(host, TWO_NODES)


def gpu(policy: str, **extra: str) -> tuple[RequestSpec, dict[str, PciAlias]]:
    asked = spec(extra, pci_requests=(PciRequest("req", "gpu"),))
    return asked, {"gpu": PciAlias("PGPU", numa_policy=policy)}


NEAR, FAR, NOWHERE = ({"_NUMA0": "cell0", "req-0": card} for card in ("card0", "card1", "card"))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("required", [NEAR]),
        ("legacy", [NEAR, NOWHERE]),
        ("preferred", [NEAR, FAR, NOWHERE]),
        ("socket", [NEAR, FAR, NOWHERE]),
    ],
)
def test_a_device_is_as_near_to_a_guest_with_nodes_as_its_alias_wants(
    policy: str, expected: list[dict[str, str]]
) -> None:
    asked, aliases = gpu(policy, **{"hw:numa_nodes": "1"})
    options = {"pci_in_placement": True, "pci_aliases": aliases}
    host = nested(NEAR, FAR, NOWHERE)
    assert left("PciPassthroughFilter", host, asked, **options) == expected


def test_a_guest_without_nodes_takes_a_device_anywhere() -> None:
    asked, aliases = gpu("required")
    options = {"pci_in_placement": True, "pci_aliases": aliases}
    assert left("PciPassthroughFilter", nested(FAR), asked, **options) == [FAR]


def test_a_host_with_no_near_device_left_is_dropped() -> None:
    asked, aliases = gpu("required", **{"hw:numa_nodes": "1"})
    options = {"pci_in_placement": True, "pci_aliases": aliases}
    assert left("PciPassthroughFilter", nested(FAR, NOWHERE), asked, **options) == []


def test_an_alias_is_refused_while_placement_is_not_asked_for_devices() -> None:
    asked = spec({"pci_passthrough:alias": "gpu:1"})
    with pytest.raises(InvalidRequest, match="pci_in_placement is off"):
        request_of(asked)


def test_the_policy_of_an_alias_is_read() -> None:
    found = pci_aliases(['{"name": "a", "resource_class": "PGPU", "numa_policy": "required"}'])
    assert found["a"].numa_policy == "required"


CARD = '"name": "a", "resource_class": "PGPU"'


@pytest.mark.parametrize(
    ("key", "required", "forbidden"),
    [
        ('"live_migratable": "yes"', {"HW_PCI_LIVE_MIGRATABLE"}, set()),
        ('"live_migratable": "false"', set(), {"HW_PCI_LIVE_MIGRATABLE"}),
        ('"traits": ""', set(), set()),
    ],
)
def test_an_alias_wants_devices_that_can_migrate_live_or_cannot_or_any(
    key: str, required: set[str], forbidden: set[str]
) -> None:
    aliases = pci_aliases([f"{{{CARD}, {key}}}"])
    asked = spec({"pci_passthrough:alias": "a:1"})
    [group] = [g for s, g in request_of(asked, pci_aliases=aliases).groups.items() if s]
    assert group.required == {frozenset((trait,)) for trait in required}
    assert group.forbidden == forbidden


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('"vendor_id": "0x10de", "product_id": "1eb8"', "vendor_id '0x10de' is not four hex"),
        ('"vendor_id": "10de", "product_id": "1eg8"', "product_id '1eg8' is not four hex"),
        ('"vendor_id": "10de", "product_id": "*"', "product_id"),
        ('"vendor_id": "10de"', "product_id"),
        ('"resource_class": "gold", "trait": "x"', "trait is not a known key"),
        ('"resource_class": "gold", "live_migratable": "maybe"', "maybe"),
        ('"resource_class": "gold", "device_type": "type-X"', "type-X"),
        ('"resource_class": "gold", "numa_policy": "near"', "near"),
    ],
)
def test_an_alias_that_no_device_can_have_is_refused_by_name(keys: str, reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=reason) as caught:
        pci_aliases([f'{{"name": "a", {keys}}}'])
    assert "[pci]alias" in str(caught.value)


def test_a_name_of_two_aliases_is_refused() -> None:
    texts = [f'{{"name": "gpu", "vendor_id": "10de", "product_id": "{p}"}}' for p in (1111, 2222)]
    with pytest.raises(InvalidConfiguration, match="gpu twice"):
        pci_aliases(texts)


def test_an_alias_that_a_flavor_names_twice_counts_twice() -> None:
    aliases = pci_aliases([f"{{{CARD}}}"])
    asked = spec({"pci_passthrough:alias": "a:1, a:2"})
    assert len([s for s in request_of(asked, pci_aliases=aliases).groups if s]) == 3


@pytest.mark.parametrize(
    "text",
    ['{"name"', '"a"', "null", "{}", '{"name": "a", "resource_class": "PGPU", "traits": [1]}'],
)
def test_an_alias_that_is_no_object_as_expected_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"\[pci\]alias"):
        pci_aliases([text])


@pytest.mark.parametrize(
    ("key", "types"),
    [
        ('"device_type": "type-PF"', {"PF"}),
        ('"device_type": "type-VF"', {"VF"}),
        ('"device_type": "type-PCI"', {"PCI"}),
        ('"traits": ""', {"PCI", "VF"}),
    ],
)
def test_an_alias_means_devices_of_its_type_and_a_pf_only_by_name(
    key: str, types: set[str]
) -> None:
    aliases = pci_aliases([f"{{{CARD}, {key}}}"])
    asked = spec({"pci_passthrough:alias": "a:1"})
    marks = {kind: f"CUSTOM_PCI_TYPE_{kind}" for kind in ("PCI", "PF", "VF")}
    context = PrefilterContext(pci_aliases=aliases, device_type_traits=frozenset(marks.values()))
    request = device_types(asked, request_of(asked, pci_aliases=aliases), context)
    [group] = [g for s, g in request.groups.items() if s]
    asked_of_placement = {kind for kind, mark in marks.items() if mark not in group.forbidden}
    assert asked_of_placement == types
