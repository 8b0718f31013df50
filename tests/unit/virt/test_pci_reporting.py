"""Switching [pci]report_in_placement on and off while guests hold devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from compute_agent import conf as agent_conf
from compute_agent import errors
from compute_agent.discovery.facts import PciAddress
from compute_agent.discovery.topology import HostTopology
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.fake import FakeNumaDriver
from compute_agent.virt.fake.topology import MachineSize, fake_topology
from compute_agent.virt.layout import LayoutOptions
from compute_agent.virt.layout.device_spec import parse_device_specs
from compute_agent.virt.layout.devices import nics
from compute_agent.virt.layout.options import PciOptions

from .hosts import NAME, Host, content

SIZE = MachineSize(cells=2, cpus_per_cell=4, memory_mib_per_cell=8192, gpus=0, nics=2, vfs_per_pf=4)
VFS = "CUSTOM_PCI_8086_1889"
PORT = "_0000:80:00.0"
VF0 = PciAddress("0001:80:00.0")
GUEST = "aaaaaaaa-0000-4000-8000-000000000001"
STRANGER = "bbbbbbbb-0000-4000-8000-000000000002"


def on() -> PciOptions:
    return PciOptions(True, parse_device_specs([json.dumps({"product_id": "1889"})], report=True))


@pytest.fixture
def host() -> Host:
    """A host whose devices are not in placement yet."""
    made = Host(fake_topology(NAME, SIZE), LayoutOptions())
    made.update()
    return made


def guest(host: Host, *addresses: PciAddress) -> None:
    host.driver.guests[GUEST] = InstanceDevices(pci_addresses=addresses)


class TestSwitchingItOn:
    """Guests that have devices get allocations for them."""

    def test_without_guests_that_hold_devices_no_reshape_is_needed(self, host: Host) -> None:
        guest(host)
        host.change(pci=on())
        host.update()
        assert host.totals(PORT) == {VFS: 4}

    def test_a_guest_without_allocations_here_is_left_to_the_audit_with_a_warning(
        self, host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        guest(host, VF0)
        host.change(pci=on())
        assert host.checked_reshape({}, match="does not count yet") == {}
        (said,) = {r.getMessage() for r in caplog.records if r.levelname == "WARNING"}
        assert GUEST in said
        assert "audit" in said

    def test_a_device_that_placement_counts_already_needs_no_reshape(self, host: Host) -> None:
        host.change(pci=on())
        host.update()
        guest(host, VF0)
        before = content(host.tree)
        assert content(host.update()) == before

    def test_devices_that_no_specification_names_are_nobodys_business(self, host: Host) -> None:
        guest(host, PciAddress("0000:00:1f.0"))
        host.change(pci=on())
        host.update()
        assert host.totals(PORT) == {VFS: 4}


class TestSwitchingItOff:
    """What somebody holds cannot be made invisible."""

    @pytest.fixture
    def reporting(self, host: Host) -> Host:
        host.change(pci=on())
        host.update()
        assert host.exists(PORT)
        return host

    def hold(self, host: Host, held: dict[str, dict[str, int]]) -> None:
        uuid = host.provider(PORT).uuid
        host.driver.holder_source = lambda asked: held if asked == uuid else {}

    def test_with_allocations_it_is_refused_naming_every_consumer(self, reporting: Host) -> None:
        self.hold(reporting, {GUEST: {VFS: 2}, STRANGER: {VFS: 1}})
        reporting.change(pci=PciOptions())
        before = content(reporting.tree)
        with pytest.raises(errors.InvalidConfiguration) as refused:
            reporting.update()
        message = str(refused.value)
        assert "report_in_placement" in message
        assert f"{GUEST} holds 2 of {VFS} on {NAME}{PORT}" in message
        assert STRANGER in message
        assert content(reporting.tree) == before

    def test_without_allocations_the_devices_leave_placement(self, reporting: Host) -> None:
        self.hold(reporting, {})
        reporting.change(pci=PciOptions())
        reporting.update()
        assert reporting.names() == [""]

    def test_a_port_that_is_reported_for_itself_stays_without_the_marks_of_a_pci_device(
        self, reporting: Host
    ) -> None:
        self.hold(reporting, {})
        nic = replace(reporting.driver.options.nic, report_vfs="always")
        reporting.change(pci=PciOptions(), nic=nic)
        reporting.update()
        assert reporting.totals(PORT) == {"SRIOV_NET_VF": 4}
        assert "COMPUTE_MANAGED_PCI_DEVICE" not in reporting.provider(PORT).traits

    def test_nobody_is_asked_while_nothing_is_taken_away(self, reporting: Host) -> None:
        def fail(uuid: str) -> Any:
            raise AssertionError(f"asked about {uuid}")

        reporting.driver.holder_source = fail
        reporting.update()


def test_a_card_gets_the_standard_trait_as_soon_as_there_is_one(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    nic = replace(host.driver.options.nic, report_vfs="always")
    host.change(nic=nic)
    card = "_NIC_0000:80:00.0"
    host.update()
    assert "CUSTOM_NIC_ROOT" in host.provider(card).traits
    newer = nics.standard_traits() | {"HW_NIC_ROOT"}
    monkeypatch.setattr(nics, "standard_traits", lambda: newer)
    host.update()
    assert "HW_NIC_ROOT" in host.provider(card).traits
    assert "CUSTOM_NIC_ROOT" not in host.provider(card).traits


class RemotePorts(FakeNumaDriver):
    """A hypervisor that can do with ports which are managed elsewhere."""

    capabilities: ClassVar[Mapping[str, bool]] = {"supports_remote_managed_ports": True}
    serial: str | None = None

    def topology(self, nodename: str) -> HostTopology:
        """Return a topology whose cards have a serial number, or none."""
        machine = super().topology(nodename)
        ports = tuple(replace(port, serial=self.serial) for port in machine.nics)
        return replace(machine, nics=ports)


@pytest.mark.parametrize(
    ("product", "serial", "present"),
    [("1889", "MT2113", True), ("1889", None, False), ("ffff", "MT2113", False)],
)
def test_ports_are_managed_remotely_only_where_cards_that_can_be_named_have_devices_for_it(
    tmp_path: Path, product: str, serial: str | None, present: bool
) -> None:
    path = tmp_path / "agent.conf"
    path.write_text(
        "[DEFAULT]\nhost = h\n[fake]\nnics = 1\nvfs_per_pf = 1\n[pci]\ndevice_spec = "
        f'{{"vendor_id": "8086", "product_id": "{product}", "remote_managed": "true"}}\n'
    )
    driver = RemotePorts(agent_conf.new_config([f"--config-file={path}"]))
    driver.serial = serial
    tree = ProviderTree()
    tree.new_root("h", "00000000-0000-4000-8000-00000000aaaa")
    assert driver.capabilities_as_traits()["COMPUTE_REMOTE_MANAGED_PORTS"] is False
    driver.update_provider_tree(tree, "h")
    assert driver.capabilities_as_traits()["COMPUTE_REMOTE_MANAGED_PORTS"] is present
