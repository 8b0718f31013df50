"""Capabilities of a real libvirt: CPU features of guests, machine types, cells, and the traits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import libvirt
import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.conf import new_config
from compute_agent.discovery.libvirt import cpu_features, guest_abilities, source
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import HostCapabilities
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.libvirt.driver import LibvirtDriver
from compute_agent.virt.libvirt.settings import check_guest_cpu, cpu_caveats
from tests.fixtures.libvirtd import Libvirtd

ROOT = "5a0c8d2c-6b0a-4e0e-8a53-3b3e9d9e6c11"
TEST_DRIVER = "test:///default"
HASWELL = GuestCpuOptions("kvm", "custom", ("Haswell-noTSX",))
SKYLAKE = GuestCpuOptions("kvm", "custom", ("Skylake-Server",))


class CountingConnection(LibvirtConnection):
    """A connection that counts its calls by the first word of their names."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.counts: Counter[str] = Counter()

    def call(self, name: str, function: Callable[[libvirt.virConnect], Any]) -> Any:
        self.counts[name.partition(" ")[0]] += 1
        return super().call(name, function)


@pytest.fixture
def make_driver(tmp_path: Path) -> Iterator[Callable[[str], LibvirtDriver]]:
    """A driver that has connected, by the options of group libvirt; another group may follow."""
    drivers: list[LibvirtDriver] = []

    def make(options: str) -> LibvirtDriver:
        (tmp_path / "instances").mkdir(exist_ok=True)
        path = tmp_path / f"agent{len(drivers)}.conf"
        path.write_text(
            f"[DEFAULT]\nhost = host1\nstate_path = {tmp_path}\nreserved_host_memory_mb = 0\n"
            f"instances_path = {tmp_path}/instances\n[gpu]\nnvml = never\n[libvirt]\n{options}\n"
        )
        driver = LibvirtDriver(new_config(["--config-file", str(path)], default_config_dirs=[]))
        drivers.append(driver)
        driver.init_host("host1")
        return driver

    yield make
    for driver in drivers:
        driver.cleanup_host("host1")


def host_of(connection: LibvirtConnection) -> HostCapabilities:
    return source.parse_capabilities(
        connection.call("getCapabilities", lambda c: c.getCapabilities())
    )


def features_at(uri: str, options: GuestCpuOptions) -> frozenset[str] | None:
    with closing(LibvirtConnection(uri)) as connection:
        abilities = guest_abilities.AbilityReader(connection, options).read(host_of(connection))
    return None if abilities.features is None else frozenset(abilities.features)


FEATURES: dict[str, tuple[GuestCpuOptions, set[str], set[str]]] = {
    "a model": (
        HASWELL,
        {"avx2", "fma", "pni", "sse4.2", "pclmuldq", "aes"},
        {"sse4a", "rtm", "avx512f"},
    ),
    "several models": (
        GuestCpuOptions("kvm", "custom", ("haswell-notsx", "EPYC")),
        {"invpcid", "sse4a", "svm"},
        set(),
    ),
    "extra flags": (
        GuestCpuOptions("kvm", "custom", ("Haswell-noTSX",), ("pdpe1gb",), ("avx2",)),
        {"pdpe1gb"},
        {"avx2"},
    ),
    "no model": (GuestCpuOptions("kvm", "none"), {"sse2", "svm"}, {"avx"}),
    # QEMU's TCG has 3DNow!, which no CPU has had for years, and no AVX-512
    "an emulated guest": (GuestCpuOptions("qemu"), {"3dnow"}, {"avx512f"}),
    "a server's model": (SKYLAKE, {"avx512f", "avx2"}, {"3dnow"}),
    "what can be emulated of it": (
        replace(SKYLAKE, virt_type="qemu"),
        {"avx2"},
        {"avx512f"},
    ),
}
"""Options, and features that guests have and lack by them."""


@pytest.mark.parametrize(("options", "has", "lacks"), FEATURES.values(), ids=FEATURES)
def test_guests_have_the_features_of_their_model_and_of_the_emulator(
    libvirtd: Libvirtd, options: GuestCpuOptions, has: set[str], lacks: set[str]
) -> None:
    features = features_at(libvirtd.uri, options)
    assert features is not None
    assert has <= features
    assert not lacks & features


def test_a_custom_model_has_its_features_on_every_hypervisor(libvirtd: Libvirtd) -> None:
    assert features_at(TEST_DRIVER, HASWELL) == features_at(libvirtd.uri, HASWELL)


def test_the_host_model_has_the_features_of_the_host_and_of_its_base_model(
    libvirtd: Libvirtd,
) -> None:
    connection = LibvirtConnection(libvirtd.uri)
    host = host_of(connection)
    features = features_at(libvirtd.uri, GuestCpuOptions("kvm"))
    connection.close()
    assert features is not None
    assert {"sse2", "pni", "lm"} <= features, "of every base model"
    # libvirt leaves out what it never offers to guests
    assert len(frozenset(host.cpu_features) - features) < len(host.cpu_features) / 2


def test_features_of_a_host_that_libvirt_does_not_describe_are_unknown() -> None:
    assert features_at(TEST_DRIVER, GuestCpuOptions("kvm", "host-model")) is None
    assert features_at(TEST_DRIVER, GuestCpuOptions("lxc")) is None


def test_an_unknown_model_is_refused_with_the_names_of_known_ones(libvirtd: Libvirtd) -> None:
    connection = LibvirtConnection(libvirtd.uri)
    options = GuestCpuOptions("kvm", "custom", ("haswell", "Hasbeen"))
    with pytest.raises(errors.InvalidConfiguration, match=r"Hasbeen, which .* Haswell-noTSX"):
        check_guest_cpu(connection, options, host_of(connection))
    connection.close()


def test_a_model_that_the_host_cannot_run_is_warned_of(
    libvirtd: Libvirtd,
) -> None:
    connection = LibvirtConnection(libvirtd.uri)
    host = host_of(connection)
    # no CPU is of both vendors' newest kinds
    options = GuestCpuOptions("kvm", "custom", ("Snowridge", "Opteron_G5"))
    unfit = cpu_features.unfit_models(connection, options, host)
    caveats = list(cpu_caveats(connection, options, host))
    connection.close()
    assert unfit
    assert [caveat.partition(",")[0] for caveat in caveats] == [
        f"[libvirt]cpu_models names {model}" for model in unfit
    ]


def test_each_machine_type_with_an_alias_is_asked_about(libvirtd: Libvirtd) -> None:
    connection = LibvirtConnection(libvirtd.uri)
    host = host_of(connection)
    domains = guest_abilities.read_domain_capabilities(connection, host, "qemu")
    connection.close()
    described = {(domain.arch, domain.machine) for domain in domains}
    assert described == {(e.arch, machine) for e in host.emulators for machine in e.machines}
    native = [domain for domain in domains if domain.arch == host.arch]
    assert len(native) > 1
    assert all("virtio" in domain.disk_buses for domain in native)
    assert all(domain.host_model_xml for domain in native)


def test_what_takes_long_is_asked_once_for_each_connection_and_version(
    libvirtd: Libvirtd,
) -> None:
    connection = CountingConnection(libvirtd.uri)
    reader = guest_abilities.AbilityReader(connection, GuestCpuOptions("qemu"))
    first = reader.read(host_of(connection), 1)
    asked = connection.counts["getDomainCapabilities"]
    assert asked > 1
    assert reader.read(host_of(connection), 1) is first
    assert connection.counts["getDomainCapabilities"] == asked
    assert reader.read(host_of(connection), 2) == first
    assert connection.counts["getDomainCapabilities"] == 2 * asked
    connection.close()
    reader.read(host_of(connection), 2)
    assert connection.counts["getDomainCapabilities"] == 3 * asked
    connection.close()


def cpu_traits_on(driver: LibvirtDriver, before: Collection[str] = ()) -> set[str]:
    """The traits of CPUs on the root after a pass over one that had some."""
    [node] = driver.get_available_nodes()
    tree = ProviderTree()
    tree.new_root(node, ROOT, 1)
    tree.add_traits(node, *before)
    driver.update_provider_tree(tree, node)
    return {trait for trait in tree.data(node).traits if trait.startswith("HW_CPU_X86_")}


def test_the_traits_of_the_root_are_those_of_the_cpu_that_guests_get(
    libvirtd: Libvirtd, make_driver: Callable[[str], LibvirtDriver]
) -> None:
    driver = make_driver(
        f"virt_type = qemu\nconnection_uri = {libvirtd.uri}\n"
        "cpu_mode = custom\ncpu_models = Skylake-Server\ncpu_model_extra_flags = -sse4.2"
    )
    traits = cpu_traits_on(driver, ["HW_CPU_X86_AVX512F"])
    assert {"HW_CPU_X86_AVX2", "HW_CPU_X86_SSE3", "HW_CPU_X86_CLMUL"} <= traits
    assert not {"HW_CPU_X86_SSE42", "HW_CPU_X86_AVX512F"} & traits


def test_traits_of_cpus_stay_where_libvirt_does_not_know_the_features(
    make_driver: Callable[[str], LibvirtDriver],
) -> None:
    driver = make_driver(f"connection_uri = {TEST_DRIVER}")
    assert cpu_traits_on(driver, ["HW_CPU_X86_AVX2"]) == {"HW_CPU_X86_AVX2"}


def test_what_guests_can_have_is_reported_as_traits(
    libvirtd: Libvirtd, make_driver: Callable[[str], LibvirtDriver]
) -> None:
    traits = make_driver(
        f"virt_type = qemu\nconnection_uri = {libvirtd.uri}\n"
        "[compute]\nimage_type_exclude_list = qcow2"
    ).capabilities_as_traits()
    present = {trait for trait, has in traits.items() if has}
    assert {
        "COMPUTE_ARCH_X86_64",
        "COMPUTE_STORAGE_BUS_VIRTIO",
        "COMPUTE_GRAPHICS_MODEL_VIRTIO",
        "COMPUTE_NET_VIF_MODEL_LAN9118",
        "COMPUTE_VIOMMU_MODEL_INTEL",
        "COMPUTE_IMAGE_TYPE_RAW",
        "COMPUTE_VOLUME_MULTI_ATTACH",
    } <= present
    assert traits["COMPUTE_STORAGE_BUS_XEN"] is False
    assert traits["COMPUTE_IMAGE_TYPE_QCOW2"] is False
    assert traits["COMPUTE_SECURITY_TPM_2_0"] is False
    assert "COMPUTE_EPHEMERAL_ENCRYPTION" not in traits


def test_the_test_driver_names_only_what_it_reports(
    make_driver: Callable[[str], LibvirtDriver],
) -> None:
    traits = make_driver(f"connection_uri = {TEST_DRIVER}").capabilities_as_traits()
    assert traits["COMPUTE_NET_VIRTIO_PACKED"] is True
    assert not [trait for trait in traits if trait.startswith("COMPUTE_STORAGE_BUS_")]
    assert "COMPUTE_SECURITY_UEFI_SECURE_BOOT" not in traits


def test_an_unknown_model_ends_the_start(
    libvirtd: Libvirtd, make_driver: Callable[[str], LibvirtDriver]
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=r"cpu_models names Hasbeen"):
        make_driver(
            f"connection_uri = {libvirtd.uri}\ncpu_mode = custom\ncpu_models = Hasbeen, EPYC"
        )
