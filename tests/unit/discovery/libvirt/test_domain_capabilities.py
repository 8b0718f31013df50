"""Capabilities of guests of one machine type."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.libvirt.guest_abilities import parse_domain_capabilities
from tests.fixtures.libvirt_documents import (
    I440FX_DOMAIN_CAPABILITIES,
    Q35_DOMAIN_CAPABILITIES,
    SEV_DOMAIN_CAPABILITIES,
    TDX_DOMAIN_CAPABILITIES,
)


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
    intel = parse_domain_capabilities(TDX_DOMAIN_CAPABILITIES)
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
