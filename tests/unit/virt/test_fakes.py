"""Fakes are public: their numbers, their guests and their misdeeds are what others build on."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt import fake
from compute_agent.virt.driver import InstanceDevices
from compute_agent.virt.fake import GuestFailure, Misdeed
from compute_agent.virt.loading import load_driver

from .conftest import MakeConf

ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
GUEST = "11111111-0000-4000-8000-000000000000"


def new_tree() -> ProviderTree:
    tree = ProviderTree()
    tree.new_root("host1", ROOT, 1)
    return tree


@pytest.mark.parametrize(
    ("driver", "numbers"),
    [
        (fake.FakeDriver, (1000, 800000, 600000)),
        (fake.SmallFakeDriver, (2, 8192, 1028)),
        (fake.FakeDriverWithPciResources, (1000, 800000, 600000)),
    ],
)
def test_the_numbers_are_those_other_projects_know(
    make_conf: MakeConf, driver: type, numbers: tuple[int, int, int]
) -> None:
    tree = new_tree()
    driver(make_conf()).update_provider_tree(tree, "host1")
    inventory = tree.data(ROOT).inventory
    assert tuple(inventory[rc]["total"] for rc in ("VCPU", "MEMORY_MB", "DISK_GB")) == numbers


def test_fake_nodes_come_and_go(make_conf: MakeConf) -> None:
    driver = fake.FakeDriver(make_conf())
    driver.set_nodes(["a", "b"])
    assert driver.get_available_nodes() == ["a", "b"]
    assert len(driver.get_nodenames_by_uuid()) == 2
    with pytest.raises(errors.ComputeHostNotFound, match="host1"):
        driver.update_provider_tree(new_tree(), "host1")


def test_bare_metal_nodes_are_named_by_their_uuids_and_may_be_deleted(make_conf: MakeConf) -> None:
    driver = fake.FakeManyNodesDriver(make_conf("[fake]\nnodes = 3\n"))
    nodes = driver.get_available_nodes()
    assert driver.get_nodenames_by_uuid() == {node: node for node in nodes}
    assert len(nodes) == 3
    driver.set_nodes(nodes[2:], deleted_nodenames=nodes[:1])
    assert driver.rebalances_nodes
    assert [driver.is_node_deleted(node) for node in nodes] == [True, False, False]


def test_the_numa_fake_has_the_machine_its_options_ask_for(make_conf: MakeConf) -> None:
    conf = make_conf("[fake]\ncells = 3\ngpus = 2\nnics = 1\npfs_per_nic = 3\nvfs_per_pf = 5\n")
    tree = new_tree()
    fake.FakeNumaDriver(conf).update_provider_tree(tree, "host1")
    records = [rc for u in tree.get_provider_uuids() for rc in tree.data(u).inventory]
    assert sorted(set(records)) == ["DISK_GB", "MEMORY_MB", "SRIOV_NET_VF", "VCPU", "VGPU"]
    counts = [records.count(rc) for rc in ("VCPU", "VGPU", "SRIOV_NET_VF")]
    assert counts == [3, 2, 3]


def test_the_numa_fake_is_by_default_two_cells_eight_gpus_and_four_ports(
    make_conf: MakeConf,
) -> None:
    tree = new_tree()
    fake.FakeNumaDriver(make_conf()).update_provider_tree(tree, "host1")
    assert len(tree) == 1 + 2 + 8 + 2 + 4


def test_a_machine_of_any_size_has_no_address_twice() -> None:
    size = fake.topology.MachineSize(gpus=32, nics=8, pfs_per_nic=16, vfs_per_pf=64)
    facts = fake.topology.fake_topology("h", size)
    addresses = [device.address for device in facts.pci_devices]
    assert len(set(addresses)) == len(addresses) == 32 + 8 * 16 * (1 + size.vfs_per_pf)


def test_the_reshape_fake_is_flat_on_odd_starts_and_nested_on_even_ones(
    make_conf: MakeConf, tmp_path: Path
) -> None:
    tree = new_tree()
    seen = []
    for _start in range(3):
        driver = load_driver("fake.FakeReshapeDriver", make_conf())
        driver.init_host("host1")
        try:
            driver.update_provider_tree(tree, "host1")
            seen.append("ok")
        except errors.ReshapeNeeded:
            seen.append("reshape")
            driver.update_provider_tree(tree, "host1", allocations={})
    assert seen == ["ok", "reshape", "reshape"]
    assert (tmp_path / fake.FakeReshapeDriver.COUNTER).read_text() == "3"


class TestMisbehaving:
    def test_it_fails_at_the_call_it_was_told_to_and_leaves_the_tree_half_edited(
        self, make_conf: MakeConf
    ) -> None:
        conf = make_conf("[fake]\nfailing_error = VirtDriverNotReady\nfailing_call = 2\n")
        driver = fake.FakeMisbehavingDriver(conf)
        driver.update_provider_tree(new_tree(), "host1")
        tree = new_tree()
        with pytest.raises(errors.VirtDriverNotReady):
            driver.update_provider_tree(tree, "host1")
        assert len(tree) > 1
        driver.update_provider_tree(tree, "host1")

    def test_it_can_be_told_anew(self, make_conf: MakeConf) -> None:
        driver = fake.FakeMisbehavingDriver(make_conf())
        driver.misbehave(Misdeed("get_available_nodes", OSError("gone"), first=1, calls=0))
        for _call in range(3):
            with pytest.raises(OSError, match="gone"):
                driver.get_available_nodes()
        driver.misbehave()
        assert driver.get_available_nodes() == ["host1"]

    @pytest.mark.parametrize("name", ["ReshapeFailed", "ReshapeNeeded", "ZeroDivisionError"])
    def test_any_error_can_be_named(self, make_conf: MakeConf, name: str) -> None:
        driver = fake.FakeMisbehavingDriver(make_conf(f"[fake]\nfailing_error = {name}\n"))
        with pytest.raises(Exception, match="failing_error") as caught:
            driver.update_provider_tree(new_tree(), "host1")
        assert type(caught.value).__name__ == name

    def test_an_error_that_does_not_exist_is_refused(self, make_conf: MakeConf) -> None:
        with pytest.raises(errors.InvalidConfiguration, match="NoSuchError"):
            fake.FakeMisbehavingDriver(make_conf("[fake]\nfailing_error = NoSuchError\n"))


class TestGuests:
    def test_guests_are_kept_with_what_they_hold(self, make_conf: MakeConf) -> None:
        driver = fake.FakeDriver(make_conf())
        devices = InstanceDevices(pinned_cpus=(1, 2))
        driver.spawn(GUEST, devices=devices)
        assert driver.list_instance_uuids() == [GUEST]
        assert driver.get_instance_devices(GUEST) == devices
        with pytest.raises(GuestFailure, match="already"):
            driver.spawn(GUEST)
        driver.destroy(GUEST)
        driver.destroy(GUEST)
        assert driver.get_instance_devices(GUEST) is None

    def test_an_excluded_image_type_is_taken_off(self, make_conf: MakeConf) -> None:
        conf = make_conf("[compute]\nimage_type_exclude_list = RAW\n")
        traits = fake.FakeDriver(conf).capabilities_as_traits()
        assert not traits["COMPUTE_IMAGE_TYPE_RAW"]
        assert traits["COMPUTE_IMAGE_TYPE_QCOW2"]
