"""The driver as a whole, on libvirt's test driver and on a real daemon with a captured machine."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import libvirt
import pytest
from oslo_config import cfg

from compute_agent import errors
from compute_agent.conf import new_config
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.libvirt.driver import LibvirtDriver
from tests.data.archive import unpack
from tests.data.machines import make
from tests.fixtures.libvirtd import Libvirtd, running_libvirtd
from tests.fixtures.stand_ins import StandIn

ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"

MakeConf = Callable[..., cfg.ConfigOpts]


@pytest.fixture
def make_conf(tmp_path: Path) -> MakeConf:
    def make(libvirt: str, more: str = "", default: str = "") -> cfg.ConfigOpts:
        instances = tmp_path / "instances"
        instances.mkdir(exist_ok=True)
        path = tmp_path / "agent.conf"
        path.write_text(
            f"[DEFAULT]\nhost = service1\nstate_path = {tmp_path}\ninstances_path = {instances}\n"
            f"reserved_host_memory_mb = 0\n{default}\n[gpu]\nnvml = never\n"
            f"[libvirt]\n{libvirt}\n{more}\n"
        )
        return new_config(["--config-file", str(path)], default_config_dirs=[])

    return make


def on(daemon: Libvirtd) -> str:
    return f"virt_type = qemu\nconnection_uri = {daemon.uri}\n"


def of(daemon: Libvirtd) -> str:
    return f"[host]\nsysfs_root = {daemon.machine}/sys\nprocfs_root = {daemon.machine}/proc\n"


def tree_of(driver: LibvirtDriver) -> ProviderTree:
    (node,) = driver.get_available_nodes()
    tree = ProviderTree()
    tree.new_root(node, ROOT, 1)
    driver.update_provider_tree(tree, node)
    return tree


def test_a_hypervisor_of_elsewhere_is_described_by_libvirt_alone(make_conf: MakeConf) -> None:
    driver = LibvirtDriver(make_conf("connection_uri = test:///default"))
    driver.init_host("service1")
    (node,) = driver.get_available_nodes()
    root = tree_of(driver).data(ROOT)
    assert root.inventory["MEMORY_MB"]["total"] == 3072
    assert "DISK_GB" not in root.inventory
    [caveat] = driver.caveats(node)
    assert "the disks of guests are on the hypervisor's own machine" in caveat
    driver.cleanup_host("service1")


def test_a_pool_of_ceph_is_measured_for_a_hypervisor_of_elsewhere_too(
    make_conf: MakeConf, stand_in: StandIn
) -> None:
    stats = f'{{"stored": {5 << 30}, "max_avail": {20 << 30}}}'
    stand_in("ceph", f'{{"pools": [{{"name": "vms", "stats": {stats}}}]}}')
    options = "connection_uri = test:///default\nimages_type = rbd\nimages_rbd_pool = vms"
    driver = LibvirtDriver(make_conf(options))
    driver.init_host("service1")
    assert tree_of(driver).data(ROOT).inventory["DISK_GB"]["total"] == 25
    driver.cleanup_host("service1")


def test_persistent_memory_of_elsewhere_cannot_be_offered(make_conf: MakeConf) -> None:
    options = "connection_uri = test:///default\npmem_namespaces = 1G:ns0"
    driver = LibvirtDriver(make_conf(options))
    with pytest.raises(errors.InvalidConfiguration, match="hypervisor of another machine"):
        driver.init_host("service1")
    driver.cleanup_host("service1")


def test_the_facts_of_a_node_are_those_of_its_hypervisor_and_guests(make_conf: MakeConf) -> None:
    driver = LibvirtDriver(make_conf("connection_uri = test:///default"))
    driver.init_host("service1")
    (node,) = driver.get_available_nodes()
    facts = driver.get_available_resource(node)
    assert facts["hypervisor_hostname"] == node
    assert (facts["hypervisor_type"], facts["hypervisor_version"]) == ("TEST", 2)
    # its one guest
    assert (facts["vcpus_used"], facts["memory_mb_used"]) == (2, 8192)
    assert ("i686", "test", "hvm") in facts["supported_instances"]
    driver.cleanup_host("service1")


def test_a_captured_machine_is_reported_under_the_name_that_its_hypervisor_has(
    libvirt_run_directory: Path, tmp_path: Path, make_conf: MakeConf
) -> None:
    machine = unpack("emulated-numa", tmp_path)
    with running_libvirtd(libvirt_run_directory, machine) as daemon:
        driver = LibvirtDriver(make_conf(on(daemon), of(daemon)))
        driver.init_host("service1")
        (node,) = driver.get_available_nodes()
        assert node.partition(".")[0] == socket.gethostname().partition(".")[0]
        tree = tree_of(driver)
        root = tree.data(ROOT)
        assert {"VCPU", "MEMORY_MB"} <= root.inventory.keys()
        facts = driver.get_available_resource(node)
        assert facts["hypervisor_type"] == "QEMU"
        assert ("x86_64", "qemu", "hvm") in facts["supported_instances"]
        before = [tree.data(uuid) for uuid in tree.get_provider_uuids()]
        driver.update_provider_tree(tree, node)
        assert [tree.data(uuid) for uuid in tree.get_provider_uuids()] == before
        driver.cleanup_host("service1")


def test_a_pass_looks_at_the_host_once(libvirtd: Libvirtd, make_conf: MakeConf) -> None:
    driver = LibvirtDriver(make_conf(on(libvirtd)))
    driver.init_host("service1")
    (node,) = driver.get_available_nodes()
    tree = ProviderTree()
    tree.new_root(node, ROOT, 1)
    asked: list[str] = []
    call = driver.connection.call

    def counted(name: str, function):  # type: ignore[no-untyped-def]
        asked.append(name)
        return call(name, function)

    driver.connection.call = counted  # type: ignore[method-assign]
    with driver.one_reading(node):
        driver.update_provider_tree(tree, node)
        driver.get_available_resource(node)
        driver.list_instance_uuids()
    assert asked.count("getCapabilities") == 1
    assert asked.count("getInfo") == 1
    driver.cleanup_host("service1")


def test_a_node_that_is_not_the_hypervisors_is_refused(make_conf: MakeConf) -> None:
    driver = LibvirtDriver(make_conf("connection_uri = test:///default"))
    with pytest.raises(errors.ComputeHostNotFound, match="test:///default"):
        driver.get_available_resource("elsewhere")
    driver.cleanup_host("service1")


def test_a_hypervisor_that_is_away_is_waited_for(make_conf: MakeConf, tmp_path: Path) -> None:
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    driver = LibvirtDriver(make_conf(f"connection_uri = {uri}"))
    with pytest.raises(errors.VirtDriverNotReady, match="cannot connect to libvirt"):
        driver.init_host("service1")
    driver.cleanup_host("service1")


def test_a_hypervisor_of_containers_is_described_without_anything_of_qemu(
    libvirt_run_directory: Path, tmp_path: Path, make_conf: MakeConf
) -> None:
    with running_libvirtd(libvirt_run_directory, make("two-sockets", tmp_path)) as daemon:
        uri = daemon.uri.replace("qemu+unix", "lxc+unix")
        try:
            libvirt.open(uri).close()
        except libvirt.libvirtError:
            pytest.skip("libvirt has no LXC (Debian package: libvirt-daemon-driver-lxc)")
        nested = "[compute]\nenable_numa_reporting_to_placement = True\n"
        options = f"virt_type = lxc\nconnection_uri = {uri}\n"
        driver = LibvirtDriver(make_conf(options, of(daemon) + nested))
        driver.init_host("service1")
        tree = tree_of(driver)
        (node,) = driver.get_available_nodes()
        assert tree.data(f"{node}_NUMA1").inventory["VCPU"]["total"] == 8
        assert tree.data(f"{node}_0000:17:00.0").inventory["SRIOV_NET_VF"]["total"] == 8
        facts = driver.get_available_resource(node)
        assert facts["hypervisor_type"] == "LXC"
        assert ("x86_64", "lxc", "exe") in facts["supported_instances"]
        driver.cleanup_host("service1")


def test_a_guest_with_persistent_memory_that_no_label_has_ends_the_start(
    libvirtd: Libvirtd, make_conf: MakeConf, stand_in: StandIn
) -> None:
    """No test has the memory: a stand-in prints what ndctl does, and the guest is never started."""
    uuid = "0d5a2e31-6f0c-4a53-9a4b-1a1c2d3e4f50"
    neighbour = libvirt.open(libvirtd.uri)
    neighbour.defineXML(
        f"<domain type='qemu'><name>{uuid}</name><uuid>{uuid}</uuid>"
        "<maxMemory slots='4' unit='MiB'>4096</maxMemory><memory unit='MiB'>64</memory>"
        "<vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>"
        "<cpu><numa><cell id='0' cpus='0' memory='64' unit='MiB'/></numa></cpu><devices>"
        "<memory model='nvdimm' access='shared'><source><path>/dev/dax1.0</path>"
        "<alignsize unit='KiB'>2048</alignsize><pmem/></source>"
        "<target><size unit='MiB'>1024</size><node>0</node><label><size unit='KiB'>128</size>"
        "</label></target></memory></devices></domain>"
    )
    neighbour.close()
    stand_in(
        "ndctl",
        '[{"name": "ns0", "size": 1073741824, "chardev": "dax0.0", "align": 2097152},'
        ' {"name": "ns1", "size": 1073741824, "chardev": "dax1.0", "align": 2097152}]',
    )
    with_both = f"{on(libvirtd)}pmem_namespaces = 1GB:ns0|ns1\n"
    driver = LibvirtDriver(make_conf(with_both))
    driver.init_host("service1")
    devices = driver.get_instance_devices(uuid)
    assert devices is not None
    assert devices.pmem == ("ns1",)
    root = tree_of(driver).data(ROOT)
    assert root.inventory["CUSTOM_PMEM_NAMESPACE_1GB"]["total"] == 2
    driver.cleanup_host("service1")
    without = LibvirtDriver(make_conf(f"{on(libvirtd)}pmem_namespaces = 1GB:ns0\n"))
    with pytest.raises(errors.InvalidConfiguration, match=f"guest {uuid} holds .* memory ns1"):
        without.init_host("service1")
    without.cleanup_host("service1")
