"""`heal_allocations`: instances described in a file get what they need and nothing else."""

import signal
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from compute_agent.placement.transports.transport import Request, Response
from compute_agent.virt.driver import CellUse, InstanceDevices
from tests.functional.manage.conftest import REPOSITORY, Agent, Answer, Operator
from tests.functional.manage.described_instances import (
    FLAVOR,
    HOST_TRAITS,
    NEED,
    consumer,
    described,
    flat_host,
    instance,
    nested_host,
)

pytestmark = pytest.mark.waiting


def test_0_when_an_instance_without_allocations_gets_what_its_flavor_says(
    operator: Operator,
) -> None:
    root = flat_host(operator.placement, operator.name)
    guest = instance(operator.name)
    result = operator.run("heal_allocations", described(operator, guest), "--json", status=0)
    assert operator.placement.held(guest["uuid"]) == {root: NEED}
    record = consumer(operator.placement, guest["uuid"])
    assert (record["project_id"], record["user_id"]) == ("a-project", "a-user")
    assert record["consumer_type"] == "INSTANCE"
    [outcome] = result.document["outcomes"]
    assert outcome["state"] == "healed"
    assert outcome["after"] == {root: NEED}


def test_4_when_nothing_needs_healing_and_when_it_was_healed_before(offline: Operator) -> None:
    root = flat_host(offline.placement)
    healthy, naked = instance("flat"), instance("flat")
    offline.placement.claim({root: NEED}, healthy["uuid"])
    assert offline.run("heal_allocations", described(offline, healthy)).status == 4
    file = described(offline, healthy, naked)
    assert offline.run("heal_allocations", file).status == 0
    before = offline.dump()
    assert offline.run("heal_allocations", file).status == 4
    assert offline.run("heal_allocations", file, "--dry-run").status == 4
    assert offline.dump() == before


def test_a_dry_run_ends_with_6_and_writes_nothing(offline: Operator) -> None:
    flat_host(offline.placement)
    before = offline.dump()
    guest = instance("flat")
    result = offline.run("heal_allocations", described(offline, guest), "--dry-run", "--json")
    assert result.status == 6
    assert result.document["outcomes"][0]["instance"] == guest["uuid"]
    assert offline.dump() == before


@pytest.mark.parametrize(
    ("held", "consumer_type", "fields", "wanted"),
    [
        ({"VCPU": 1, "DISK_GB": 10}, "INSTANCE", {}, NEED),
        ({"VCPU": 1}, None, {}, NEED),
        (NEED, "INSTANCE", {"project_id": "p", "user_id": "u"}, NEED),
        ({}, "INSTANCE", {"is_bfv": True}, {"VCPU": 2, "MEMORY_MB": 512}),
    ],
    ids=["part", "without a type", "of another owner", "boots from a volume"],
)
def test_what_an_instance_lacks_is_added_and_the_rest_stays(
    offline: Operator,
    held: dict[str, int],
    consumer_type: str | None,
    fields: dict[str, Any],
    wanted: dict[str, int],
) -> None:
    root = flat_host(offline.placement)
    guest = instance("flat", **fields)
    if held:
        offline.placement.claim({root: held}, guest["uuid"], consumer_type)
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    assert offline.placement.held(guest["uuid"]) == {root: wanted}
    record = consumer(offline.placement, guest["uuid"])
    assert record["consumer_type"] == "INSTANCE"
    assert [record[name] for name in ("project_id", "user_id")] == [
        guest["project_id"],
        guest["user_id"],
    ]


def test_on_a_nested_host_cpus_and_memory_come_from_one_cell(offline: Operator) -> None:
    root, *cells = nested_host(offline.placement)
    guest = instance("nested")
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    held = offline.placement.held(guest["uuid"])
    assert held.pop(root) == {"DISK_GB": 10}
    [(cell, amounts)] = held.items()
    assert cell in cells
    assert amounts == {"VCPU": 2, "MEMORY_MB": 512}


@pytest.mark.parametrize("uses", [[(2, 512), None], [None, (2, 512)], [(1, 384), (1, 128)]])
def test_a_guest_holds_on_each_cell_what_it_has_there(
    offline: Operator, uses: list[tuple[int, int] | None]
) -> None:
    root, *providers = nested_host(offline.placement)
    cells = [
        {"cell": cell, "vcpus": use[0], "memory_mib": use[1]}
        for cell, use in enumerate(uses)
        if use
    ]
    guest = instance("nested", devices={"cells": cells})
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    assert offline.placement.held(guest["uuid"]) == {
        root: {"DISK_GB": 10},
        **{
            providers[use["cell"]]: {"VCPU": use["vcpus"], "MEMORY_MB": use["memory_mib"]}
            for use in cells
        },
    }


def test_a_guest_larger_than_a_cell_is_spread_over_several(offline: Operator) -> None:
    root, *cells = nested_host(offline.placement)
    flavor = {"vcpus": 6, "memory_mb": 1500, "root_gb": 1}
    guest = instance("nested", flavor=flavor)
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    held = offline.placement.held(guest["uuid"])
    assert held.pop(root) == {"DISK_GB": 1}
    assert set(held) == set(cells)
    assert sum(holding["VCPU"] for holding in held.values()) == 6
    assert sum(holding["MEMORY_MB"] for holding in held.values()) == 1500


def test_the_agent_tells_which_cell_the_guest_is_on(
    offline: Operator, on_bus: Callable[[Agent], None]
) -> None:
    root, *cells = nested_host(offline.placement)
    known, unknown = instance("nested"), instance("nested")
    cell = InstanceDevices(cells=(CellUse(1, 2, 512),))
    on_bus(Agent("nested", [root], devices={known["uuid"]: cell}))
    assert offline.run("heal_allocations", described(offline, known, unknown)).status == 0
    assert offline.placement.held(known["uuid"])[cells[1]] == {"VCPU": 2, "MEMORY_MB": 512}
    assert offline.placement.held(unknown["uuid"])


@pytest.mark.parametrize("used", ["0000:84:00.0", "0000:C4:00.0"])
def test_a_vgpu_comes_from_the_card_that_the_guest_has_it_from(
    offline: Operator, used: str
) -> None:
    placement = offline.placement
    root = flat_host(placement)
    cards = {
        address: placement.new_provider(
            f"flat_pci_{address.lower().replace(':', '_').replace('.', '_')}", {"VGPU": 4}, (), root
        )
        for address in ("0000:84:00.0", "0000:C4:00.0")
    }
    flavor = FLAVOR | {"extra_specs": {"resources:VGPU": "1"}}
    guest = instance("flat", flavor=flavor, devices={"mdevs": [{"parent": used}]})
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    assert offline.placement.held(guest["uuid"]) == {root: NEED, cards[used]: {"VGPU": 1}}


def test_missing_disk_alone_is_taken_from_the_pool_that_the_host_shares(offline: Operator) -> None:
    placement, mine = offline.placement, str(uuid.uuid4())
    root = placement.new_provider("flat", {"VCPU": 8, "MEMORY_MB": 4096}, HOST_TRAITS)
    pool = placement.new_provider("pool", {"DISK_GB": 99}, ("MISC_SHARES_VIA_AGGREGATE",))
    for provider in (root, pool):
        placement.set_aggregates(provider, [mine])
    without, with_part = instance("flat"), instance("flat")
    placement.claim({root: {"VCPU": 2, "MEMORY_MB": 512}}, with_part["uuid"])
    assert offline.run("heal_allocations", described(offline, without, with_part)).status == 0
    for case in (without, with_part):
        held = {root: {"VCPU": 2, "MEMORY_MB": 512}, pool: {"DISK_GB": 10}}
        assert placement.held(case["uuid"]) == held


def test_a_port_gets_what_it_asks_for_and_its_provider_is_told(offline: Operator) -> None:
    placement, port = offline.placement, str(uuid.uuid4())
    root = flat_host(placement)
    nic = placement.new_provider("nic", {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, (), root)
    request = {"resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 100}, "required": []}
    guest = instance("flat", ports=[{"id": port, "resource_request": request}])
    placement.claim({root: NEED}, guest["uuid"])
    file = described(offline, guest)
    assert offline.run("heal_allocations", file, "--skip-port-allocations").status == 4
    result = offline.run("heal_allocations", file, "--json", status=0)
    assert placement.held(guest["uuid"]) == {root: NEED, nic: {"NET_BW_EGR_KILOBIT_PER_SEC": 100}}
    assert result.document["outcomes"][0]["bindings"] == {port: nic}
    assert offline.run("heal_allocations", file).status == 4


def test_healing_that_is_killed_again_and_again_is_completed_by_the_next_run(
    offline: Operator,
) -> None:
    root = flat_host(offline.placement)
    all_ = [instance("flat") for _ in range(4)]
    file = described(offline, *all_)
    kills = 0
    while offline.run_killed_before_write(2, "heal_allocations", file).status == -signal.SIGKILL:
        kills += 1
        held = [offline.placement.held(consumer["uuid"]) for consumer in all_]
        assert all(holding in ({}, {root: NEED}) for holding in held)
    assert kills > 1
    assert all(offline.placement.held(entry["uuid"]) == {root: NEED} for entry in all_)
    assert offline.run("heal_allocations", file).status == 4


@pytest.mark.parametrize(
    "fields", [{"task_state": "migrating"}, {"deleted": True}, {"host": ""}, {"moving": True}]
)
def test_an_instance_that_is_not_settled_is_left_alone(
    offline: Operator, fields: dict[str, Any]
) -> None:
    flat_host(offline.placement)
    before = offline.dump()
    result = offline.run(
        "heal_allocations", described(offline, instance("flat") | fields), "--json"
    )
    assert result.status == 4
    assert result.document["outcomes"][0]["state"] == "skipped"
    assert offline.dump() == before


def test_what_nothing_asks_for_is_reported_and_taken_away_by_force_alone(
    offline: Operator,
) -> None:
    root, other = flat_host(offline.placement), flat_host(offline.placement, "other")
    guest = instance("flat")
    much = {root: {**NEED, "VCPU": 5}, other: {"VCPU": 1}}
    offline.placement.claim(much, guest["uuid"])
    file = described(offline, guest)
    result = offline.run("heal_allocations", file, "--json", status=4)
    assert result.document["outcomes"][0]["surplus"] == {root: {"VCPU": 3}, other: {"VCPU": 1}}
    assert offline.placement.held(guest["uuid"]) == much
    assert "--force" in offline.run("heal_allocations", file).out
    argument = f"--instance={guest['uuid']}"
    assert offline.run("heal_allocations", file, argument, "--force").status == 0
    assert offline.placement.held(guest["uuid"]) == {root: NEED}


def test_only_the_instance_or_the_cell_that_is_named_is_healed(offline: Operator) -> None:
    root = flat_host(offline.placement)
    first, second, third = (instance("flat", cell=cell) for cell in ("a", "b", "b"))
    file = described(offline, first, second, third)
    assert offline.run("heal_allocations", file, f"--instance={second['uuid']}").status == 0
    assert offline.placement.held(second["uuid"]) == {root: NEED}
    assert offline.placement.held(third["uuid"]) == {}
    assert offline.run("heal_allocations", file, "--cell=b").status == 0
    assert offline.placement.held(third["uuid"]) == {root: NEED}
    assert offline.placement.held(first["uuid"]) == {}


def test_a_bare_uuid_says_that_it_exists_and_nothing_else(offline: Operator) -> None:
    flat_host(offline.placement)
    bare = str(uuid.uuid4())
    file = described(offline, bare)
    assert offline.run("heal_allocations", file).status == 4
    result = offline.run("heal_allocations", file, f"--instance={bare}", status=127)
    assert "flavor" in result.err


def test_the_audit_reads_the_same_file(offline: Operator) -> None:
    root = flat_host(offline.placement)
    alive, migration, gone = instance("flat"), str(uuid.uuid4()), str(uuid.uuid4())
    for holder in (alive["uuid"], migration, gone):
        offline.placement.claim({root: {"VCPU": 1}}, holder)
    file = described(offline, alive, f"{migration}  # a migration")
    result = offline.run("audit", file, "--min-age=0", "--json")
    assert [orphan["uuid"] for orphan in result.document["orphans"]] == [gone]


def test_an_instance_that_changes_meanwhile_is_looked_at_again(
    offline: Operator, answering: Callable[[Answer], None]
) -> None:
    root = flat_host(offline.placement)
    guest = instance("flat")
    raced: list[str] = []

    def race(request: Request, _ask: Callable[[Request], Response]) -> None:
        if request.method == "PUT" and not raced:
            raced.append(request.path)
            offline.placement.claim({root: {"VCPU": 2}}, guest["uuid"])

    answering(race)
    assert offline.run("heal_allocations", described(offline, guest)).status == 0
    assert raced == [f"/allocations/{guest['uuid']}"]
    assert offline.placement.held(guest["uuid"]) == {root: NEED}


def test_the_sample_file_describes_instances_that_are_healed(offline: Operator) -> None:
    for host in ("cmp-17.example.org", "cmp-18.example.org"):
        root = flat_host(offline.placement, host, MEMORY_MB=65536, PCPU=8)
        card = f"{host}_pci_0000_84_00_0"
        offline.placement.new_provider(card, {"VGPU": 4}, (), root)
        nic = {"NET_BW_EGR_KILOBIT_PER_SEC": 5000}
        offline.placement.ask("PUT", "/traits/CUSTOM_PHYSNET_DATA")
        offline.placement.new_provider(f"{host}_nic", nic, ("CUSTOM_PHYSNET_DATA",), root)
    sample = f"--instances={REPOSITORY / 'etc' / 'instances.jsonl.sample'}"
    result = offline.run("heal_allocations", sample, "--json")
    assert result.status == 0, result.err
    states = [outcome["state"] for outcome in result.document["outcomes"]]
    assert states == ["healed", "healed", "skipped", "healed"]
