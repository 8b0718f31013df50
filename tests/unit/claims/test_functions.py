"""Virtual functions of network ports as units: those an instance has, and those it holds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compute_agent.errors import ComputeResourcesUnavailable
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.layout.options import PciOptions
from tests.unit.claims.claiming import ONE, TWO, Host


@pytest.fixture
def host(tmp_path) -> Host:
    """A host that counts the 4 functions of its port as SRIOV_NET_VF."""
    host = Host(tmp_path)
    host.driver.options = replace(host.driver.options, pci=PciOptions())
    host.driver.update_provider_tree(host.tree, "h")
    return host


def functions(host: Host) -> list[str]:
    return [str(vf.address) for vf in host.driver.machine.nics[0].vfs]


def differences(host: Host) -> dict[str, str]:
    holders: dict[str, dict[str, dict[str, int]]] = {}
    for consumer, held in host.report.held.items():
        for uuid, classes in held.items():
            holders.setdefault(uuid, {})[consumer] = dict(classes)
    return host.book.differences("h", holders)


def run(host: Host, instance: str, *addresses: str) -> None:
    host.driver.spawn(instance, devices=InstanceDevices(pci_addresses=addresses))


def test_a_claim_of_functions_ends_in_their_addresses(host):
    assert host.claim(ONE, SRIOV_NET_VF=2) == functions(host)[:2]
    assert host.claim(TWO, SRIOV_NET_VF=1) == functions(host)[2:3]


def test_a_function_the_host_uses_is_given_to_nobody(host):
    port = host.driver.machine.nics[0]
    used = tuple(replace(vf, in_use_by_host=vf.index == 0) for vf in port.vfs)
    host.driver.machine = replace(host.driver.machine, nics=(replace(port, vfs=used),))
    host.driver.update_provider_tree(host.tree, "h")
    assert host.claim(ONE, SRIOV_NET_VF=3) == functions(host)[1:]


def test_a_function_that_a_guest_has_without_a_claim_is_given_to_nobody_else(host):
    run(host, TWO, functions(host)[0])
    assert host.claim(ONE, SRIOV_NET_VF=1) == functions(host)[1:2]


def test_a_guest_that_has_what_it_holds_agrees(host):
    host.allocate(ONE, SRIOV_NET_VF=2)
    run(host, ONE, *functions(host)[1:3])
    assert differences(host) == {}


def test_a_guest_with_other_functions_than_it_holds_is_told(host):
    host.allocate(ONE, SRIOV_NET_VF=1)
    run(host, ONE, *functions(host)[1:3])
    assert "it has 2 SRIOV_NET_VF of h_0000:80:00.0 and holds 1" in differences(host)[ONE]


def test_a_guest_of_a_scheduler_that_allocates_no_functions_is_no_drift(host):
    host.allocate(ONE, VCPU=1)
    run(host, ONE, functions(host)[0])
    assert differences(host) == {}


def test_a_guest_that_got_another_function_than_its_claim_names_holds_that_one_only(host):
    first, second, third, fourth = functions(host)
    assert host.claim(ONE, SRIOV_NET_VF=1) == [first]
    run(host, ONE, fourth)
    assert host.claim(TWO, SRIOV_NET_VF=3) == [first, second, third]
    with pytest.raises(ComputeResourcesUnavailable, match="1 SRIOV_NET_VF"):
        host.claim("00000000-0000-4000-8000-00000000bbbb", SRIOV_NET_VF=1)
