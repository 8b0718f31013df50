"""An instance's part of the host, compared with its allocations in placement.

The host has two cells of 4 dedicated CPUs each, a GPU of 2 vGPUs and 4 functions of one port.
"""

from __future__ import annotations

from typing import Any

from compute_agent.virt.driver import CellUse, InstanceDevices, MdevUse
from tests.unit.claims.claiming import ONE, TWO, Host


def compared(host: Host, **devices: Any) -> str:
    """What differs for an instance that runs with these devices."""
    host.driver.spawn(ONE, devices=InstanceDevices(**devices))
    holders = {
        uuid: {ONE: dict(classes)} for uuid, classes in host.report.held.get(ONE, {}).items()
    }
    other = {host.provider("CUSTOM_VF"): {TWO: {"CUSTOM_VF": 1}}}
    return host.book.differences("h", {**other, **holders}).get(ONE, "")


def gpu(host: Host) -> str:
    return str(host.driver.machine.gpus[0].address)


def test_an_instance_that_has_what_it_holds_agrees(host):
    host.allocate(ONE, PCPU=2, VGPU=1, MEMORY_MB=512)
    use = (CellUse(0, 2, 512), CellUse(1, 1, 0))
    mdevs = (MdevUse(ONE, gpu(host)),)
    assert compared(host, pinned_cpus=(4, 5), mdevs=mdevs, cells=use) == ""


def test_certain_units_are_counted_on_the_provider_that_has_them(host):
    host.allocate(ONE, PCPU=2, VGPU=1)
    said = compared(host, pinned_cpus=(4, 20), mdevs=(MdevUse(ONE, gpu(host)),) * 2)
    assert "it has 1 PCPU of h_NUMA0 and holds 2" in said
    assert "it has 1 PCPU of h_NUMA1 and holds 0" in said
    assert "it has 2 VGPU of" in said


def test_what_a_claim_gave_and_placement_does_not_hold_any_more_is_told(host):
    host.claim(ONE, VCPU=2, MEMORY_MB=512)
    host.allocate(ONE, VCPU=1, MEMORY_MB=512)
    assert compared(host) == "it was given 2 VCPU of h_NUMA0 and holds 1"


def test_a_claim_made_while_guests_are_described_waits_for_the_next_comparison(host, monkeypatch):
    host.claim(ONE, VCPU=1)
    describe = host.driver.get_devices_of_instances

    def claim_meanwhile():
        monkeypatch.undo()
        host.claim(ONE, VCPU=2)
        return describe()

    monkeypatch.setattr(host.driver, "get_devices_of_instances", claim_meanwhile)
    assert compared(host) == ""


def test_what_was_attached_after_the_claim_is_no_difference(host):
    host.claim(ONE, VCPU=2)
    host.allocate(ONE, VCPU=2, MEMORY_MB=512)
    assert compared(host) == ""


def test_memory_on_another_cell_than_was_allocated_is_told(host):
    host.allocate(ONE, VCPU=1, MEMORY_MB=512)
    said = compared(host, cells=(CellUse(1, 1, 512),))
    assert said == "its memory is on NUMA cells 1 and it holds of 0"


def test_an_instance_that_holds_nothing_here_is_another_kind_of_drift(host):
    assert compared(host, pinned_cpus=(4,)) == ""
