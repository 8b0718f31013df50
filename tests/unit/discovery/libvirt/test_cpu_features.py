"""Abilities of guests: devices, firmware, and features of their CPUs by the options."""

from __future__ import annotations

import logging
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from compute_agent.discovery.errors import CallFailed, FactMalformed
from compute_agent.discovery.libvirt import guest_abilities, source
from compute_agent.discovery.libvirt.cpu_features import (
    GuestCpuOptions,
    cpus_of_guests,
    effective_mode,
    features,
    guest_features,
    spell_models,
    unfit_models,
)
from compute_agent.discovery.libvirt.guest_abilities import AbilityReader, parse_domain_capabilities
from tests.fixtures.libvirt_documents import (
    AARCH64_CAPABILITIES,
    EXPANDED_CPU,
    I440FX_DOMAIN_CAPABILITIES,
    LXC_CAPABILITIES,
    Q35_DOMAIN_CAPABILITIES,
    SEV_DOMAIN_CAPABILITIES,
    TDX_DOMAIN_CAPABILITIES,
    X86_CAPABILITIES,
)

from .conftest import MakeConnection


def test_devices_and_firmware_are_read() -> None:
    capabilities = parse_domain_capabilities(Q35_DOMAIN_CAPABILITIES)
    assert (capabilities.arch, capabilities.machine) == ("x86_64", "pc-q35-7.2")
    assert capabilities.virt_type == "kvm"
    assert capabilities.disk_buses == ("fdc", "sata", "scsi", "usb", "virtio")
    assert capabilities.video_models == ("none", "vga", "virtio")
    assert capabilities.filesystems == ("path", "virtiofs")
    assert capabilities.tpm_models == ("tpm-crb", "tpm-tis")
    assert capabilities.tpm_backends == ("emulator", "passthrough")
    assert capabilities.tpm_versions == ("1.2", "2.0")
    assert capabilities.firmwares == ("bios", "efi")
    assert capabilities.secure_boot
    assert not capabilities.tdx


def test_secure_boot_needs_firmware_that_libvirt_finds() -> None:
    text = Q35_DOMAIN_CAPABILITIES.replace("<value>efi</value>", "")
    assert not parse_domain_capabilities(text).secure_boot


def test_the_host_model_is_a_cpu_for_a_baseline() -> None:
    capabilities = parse_domain_capabilities(Q35_DOMAIN_CAPABILITIES)
    assert capabilities.host_model_xml is not None
    cpu = ElementTree.fromstring(capabilities.host_model_xml)
    assert (cpu.findtext("arch"), cpu.findtext("model")) == ("x86_64", "EPYC")
    assert [f.get("policy") for f in cpu.findall("feature")] == ["require", "require", "disable"]


def test_what_is_not_supported_is_absent() -> None:
    capabilities = parse_domain_capabilities(I440FX_DOMAIN_CAPABILITIES)
    assert capabilities.host_model_xml is None
    assert (capabilities.tpm_models, capabilities.firmwares) == ((), ())
    assert not capabilities.secure_boot
    assert (capabilities.sev_guests, capabilities.tdx) == (None, False)


def test_encrypted_guests_are_counted_by_kind() -> None:
    amd = parse_domain_capabilities(SEV_DOMAIN_CAPABILITIES)
    assert (amd.sev_guests, amd.sev_es_guests) == (410, 99)
    assert amd.launch_security == ("sev", "sev-snp")
    assert not amd.tdx
    for other_sign in ("<value>tdx</value>", "<tdx supported='yes'/>"):
        intel = parse_domain_capabilities(TDX_DOMAIN_CAPABILITIES.replace(other_sign, ""))
        assert (intel.sev_guests, intel.sev_es_guests, intel.tdx) == (None, None, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<maxGuests>410", "<maxGuests>many", "a decimal number"),
        ("<arch>x86_64</arch>", "", "elements arch and domain"),
        ("</domainCapabilities>", "", "an XML document"),
    ],
)
def test_a_malformed_document_is_an_error_that_names_the_place(
    old: str, new: str, message: str
) -> None:
    with pytest.raises(FactMalformed, match=message):
        parse_domain_capabilities(SEV_DOMAIN_CAPABILITIES.replace(old, new))


X86 = source.parse_capabilities(X86_CAPABILITIES)
ARM = source.parse_capabilities(AARCH64_CAPABILITIES)
CONTAINERS = source.parse_capabilities(LXC_CAPABILITIES)
NATIVE = guest_abilities.parse_domain_capabilities(Q35_DOMAIN_CAPABILITIES)
EMULATED = replace(NATIVE, virt_type="qemu")


@pytest.mark.parametrize(
    ("virt_type", "arch", "mode"),
    [
        ("kvm", "x86_64", "host-model"),
        ("qemu", "i686", "host-model"),
        ("kvm", "aarch64", "host-passthrough"),
        ("qemu", "aarch64", "none"),
        ("kvm", "ppc64le", "none"),
        ("lxc", "x86_64", "none"),
    ],
)
def test_the_mode_follows_the_architecture_where_none_is_set(
    virt_type: str, arch: str, mode: str
) -> None:
    assert effective_mode(GuestCpuOptions(virt_type), arch) == mode
    assert effective_mode(GuestCpuOptions(virt_type, "custom"), arch) == "custom"


def test_kvm_guests_get_the_cpu_of_the_host() -> None:
    for mode in ("host-model", "host-passthrough"):
        assert cpus_of_guests(GuestCpuOptions("kvm", mode), X86, [EMULATED]) == (X86.cpu_xml,)


def test_emulated_guests_get_the_cpu_that_the_emulator_has() -> None:
    options = GuestCpuOptions("qemu")
    assert cpus_of_guests(options, X86, [NATIVE, EMULATED]) == (EMULATED.host_model_xml,)
    assert cpus_of_guests(options, X86, [NATIVE]) == ()


def test_custom_models_and_defaults_are_expanded_one_by_one() -> None:
    custom = GuestCpuOptions("kvm", "custom", ("EPYC", "A & B"))
    assert cpus_of_guests(custom, X86, []) == (
        "<cpu><arch>x86_64</arch><model>EPYC</model></cpu>",
        "<cpu><arch>x86_64</arch><model>A &amp; B</model></cpu>",
    )
    [default] = cpus_of_guests(GuestCpuOptions("kvm", "none"), X86, [])
    assert "<model>qemu64</model>" in default


def test_a_host_without_a_model_and_containers_have_nothing_to_expand() -> None:
    assert cpus_of_guests(GuestCpuOptions("kvm"), CONTAINERS, []) == ()
    assert cpus_of_guests(GuestCpuOptions("lxc"), X86, []) == ()


def test_disabled_features_are_not_features() -> None:
    required, disabled = features(EXPANDED_CPU)
    assert (sorted(required), sorted(disabled)) == (["avx2", "pni"], ["sha-ni"])
    with pytest.raises(FactMalformed, match="a CPU"):
        features("<cpu>")


def test_models_are_found_in_any_case() -> None:
    known = ["Haswell", "EPYC"]
    assert spell_models(["haswell", "Epyc", "None"], known) == (("Haswell", "EPYC"), ("None",))
    assert spell_models(["cortex-a57"], []) == (("cortex-a57",), ())


def test_emulated_cpus_are_expanded_by_the_emulator(make_connection: MakeConnection) -> None:
    asked: list[tuple[Any, ...]] = []

    def expand(*arguments: Any) -> str:
        asked.append(arguments)
        return EXPANDED_CPU

    connection = make_connection(baselineHypervisorCPU=expand)
    assert guest_features(connection, GuestCpuOptions("qemu"), X86, [EMULATED]) == ("avx2", "pni")
    assert asked == [(None, "x86_64", None, "qemu", [EMULATED.host_model_xml], 1)]


def test_without_a_baseline_of_the_emulator_its_disabled_features_are_left_out(
    make_connection: MakeConnection,
) -> None:
    answer = "<cpu><feature name='aes'/><feature name='sha-ni'/></cpu>"
    connection = make_connection(baselineCPU=lambda _cpus, _flags: answer)
    assert guest_features(connection, GuestCpuOptions("qemu"), X86, [EMULATED]) == ("aes",)


def test_features_are_unknown_where_libvirt_has_no_baseline(
    make_connection: MakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert guest_features(make_connection(), GuestCpuOptions("kvm"), X86, []) is None
    [record] = caplog.records
    assert record.levelno == logging.INFO


def test_features_are_unknown_where_libvirt_rejects_the_cpu(
    make_connection: MakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_cpus: object, _flags: int) -> str:
        raise CallFailed("baselineCPU", "CPU is broken", 1)

    connection = make_connection(baselineCPU=refuse)
    assert guest_features(connection, GuestCpuOptions("kvm"), X86, []) is None
    assert "CPU is broken" in caplog.text


def test_arm_hosts_list_their_features_themselves(make_connection: MakeConnection) -> None:
    options = GuestCpuOptions("kvm", removed_features=("atomics",))
    assert guest_features(make_connection(), options, ARM, []) == ("asimd", "fp")


def test_a_model_whose_features_libvirt_does_not_know_leaves_them_unknown(
    make_connection: MakeConnection,
) -> None:
    connection = make_connection(baselineCPU=lambda _c, _f: "<cpu><model>max</model></cpu>")
    assert guest_features(connection, GuestCpuOptions("kvm", "none"), ARM, []) is None


def test_only_models_that_kvm_cannot_run_are_unfit(make_connection: MakeConnection) -> None:
    def compare(document: str, _flags: int) -> int:
        return 0 if "EPYC" in document else 2

    connection = make_connection(
        compareCPU=compare, getCPUModelNames=lambda _arch: ["EPYC", "Haswell"]
    )
    options = GuestCpuOptions("kvm", "custom", ("epyc", "haswell"))
    assert unfit_models(connection, options, X86) == ("EPYC",)
    assert unfit_models(connection, replace(options, virt_type="qemu"), X86) == ()
    assert unfit_models(make_connection(), options, X86) == ()


def test_domain_capabilities_are_asked_of_what_the_emulators_run(
    make_connection: MakeConnection,
) -> None:
    asked = []

    def describe(path: str, arch: str, machine: str, kind: str, _flags: int) -> str:
        asked.append((path, arch, machine, kind))
        return Q35_DOMAIN_CAPABILITIES

    connection = make_connection(getDomainCapabilities=describe)
    reader = AbilityReader(connection, GuestCpuOptions("kvm", "none"))
    assert len(reader.read(X86).domain_capabilities) == 3
    assert asked == [
        ("/usr/bin/qemu-system-aarch64", "aarch64", "virt-7.2", "qemu"),
        ("/usr/bin/qemu-system-x86_64", "x86_64", "pc-i440fx-7.2", "kvm"),
        ("/usr/bin/qemu-system-x86_64", "x86_64", "pc-q35-7.2", "kvm"),
    ]


def test_one_machine_type_that_libvirt_cannot_describe_is_left_out(
    make_connection: MakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    def describe(_path: str, arch: str, machine: str, *_rest: object) -> str:
        if machine == "pc-q35-7.2":
            raise CallFailed("getDomainCapabilities", "no such machine", 8)
        return "<domainCapabilities>" if arch == "aarch64" else Q35_DOMAIN_CAPABILITIES

    connection = make_connection(getDomainCapabilities=describe)
    reader = AbilityReader(connection, GuestCpuOptions("kvm", "none"))
    assert len(reader.read(X86).domain_capabilities) == 1
    assert "no such machine" in caplog.text
    assert "expected an XML document" in caplog.text


def test_another_cpu_or_emulator_of_the_host_is_asked_about_again(
    make_connection: MakeConnection,
) -> None:
    connection = make_connection(getDomainCapabilities=lambda *_all: Q35_DOMAIN_CAPABILITIES)
    reader = AbilityReader(connection, GuestCpuOptions("kvm", "none"))
    reader.read(X86, 1)
    assert connection.counts["getDomainCapabilities"] == 3
    reader.read(X86, 1)
    assert connection.counts["getDomainCapabilities"] == 3
    reader.read(replace(X86, emulators=X86.emulators[:1]), 1)
    assert connection.counts["getDomainCapabilities"] == 4
    reader.read(replace(X86, emulators=X86.emulators[:1], cpu_xml="<cpu/>"), 1)
    assert connection.counts["getDomainCapabilities"] == 5
