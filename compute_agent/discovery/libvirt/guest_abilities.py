"""Abilities of guests on a host: devices, firmware and CPU features, kept as they take long.

Source: https://libvirt.org/formatdomaincaps.html
"""

from __future__ import annotations

import logging
from operator import methodcaller
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from msgspec import Struct

from compute_agent.discovery.errors import CallFailed, CallUnsupported, FactMalformed
from compute_agent.discovery.libvirt import cpu_features, elements
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HostCapabilities

LOG = logging.getLogger(__name__)

_EMULATED: Final = "qemu"
DOCUMENT: Final = "getDomainCapabilities"


class GuestAbilities(Struct, frozen=True):
    """Everything that changes only with the hypervisor, its programs or the host's CPU."""

    domain_capabilities: tuple[DomainCapabilities, ...] = ()
    """Empty: libvirt does not report them."""
    features: tuple[str, ...] | None = None
    """Of guests' CPUs; None = unknown."""
    cpu_mode: str | None = None


class AbilityReader(Struct, eq=False):
    """Asks once for each connection, and again when hypervisor, emulators or CPU changed.

    libvirt has a document for each architecture and machine type; after an update of an emulator it
    runs that for seconds to write them.
    """

    connection: LibvirtConnection
    options: GuestCpuOptions
    _kept_abilities: tuple[object, GuestAbilities] | None = None

    def read(self, host: HostCapabilities, *versions: int) -> GuestAbilities:
        """Return what guests can have on this host.

        :param versions: of hypervisor and libvirt.
        :raises HypervisorUnreachable: there is no answer now.
        """
        basis = (self.connection.openings, versions, host.cpu_xml, host.emulators)
        if self._kept_abilities is None or self._kept_abilities[0] != basis:
            domains = read_domain_capabilities(self.connection, host, self.options.virt_type)
            abilities = GuestAbilities(
                domains,
                cpu_features.guest_features(self.connection, self.options, host, domains),
                cpu_features.effective_mode(self.options, host.arch),
            )
            self._kept_abilities = (basis, abilities)
        return self._kept_abilities[1]


def read_domain_capabilities(
    connection: LibvirtConnection, host: HostCapabilities, virt_type: str
) -> tuple[DomainCapabilities, ...]:
    """Ask for what guests of each architecture and machine type can have.

    Architectures that only an emulator can run are asked about as emulated ones.

    :returns: by architecture and machine type; empty = libvirt does not report them.
    :raises HypervisorUnreachable: there is no answer now.
    """
    facts = []
    for emulator in host.emulators:
        kind = virt_type
        if virt_type == "kvm" and virt_type not in emulator.virt_types:
            kind = _EMULATED
        if kind not in emulator.virt_types:
            continue
        for machine in emulator.machines or (None,):
            ask = methodcaller(
                "getDomainCapabilities", emulator.path, emulator.arch, machine, kind, 0
            )
            name = f"getDomainCapabilities of {emulator.arch} {machine or 'guests'}"
            try:
                facts.append(parse_domain_capabilities(connection.call(name, ask)))
            except CallUnsupported as error:
                LOG.info("The capabilities of guests are unknown: %s", error)
                return ()
            except (CallFailed, FactMalformed) as error:
                LOG.warning("%s guests of type %s are left out: %s", emulator.arch, kind, error)
    return tuple(facts)


def parse_domain_capabilities(text: str) -> DomainCapabilities:
    """Return the facts of a document.

    :raises FactMalformed: it is not XML, names no architecture or kind of guests, or a number in it
        cannot be read.
    """
    root = elements.document(text, DOCUMENT)
    arch, virt_type = root.findtext("arch"), root.findtext("domain")
    if not arch or not virt_type:
        raise FactMalformed(DOCUMENT, text, "elements arch and domain")
    tpm = _supported_element(root, "devices/tpm")
    firmwares = _names(root.find("os"), "firmware")
    loader = _supported_element(root, "os/loader")
    security = _names(_supported_element(root, "features/launchSecurity"), "sectype")
    sev = _supported_element(root, "features/sev")
    return DomainCapabilities(
        arch=arch,
        machine=root.findtext("machine") or None,
        virt_type=virt_type,
        host_model_xml=_as_cpu(_supported_element(root, "cpu/mode[@name='host-model']"), arch),
        firmwares=firmwares,
        secure_boot="efi" in firmwares and "yes" in _names(loader, "secure"),
        disk_buses=_names(_supported_element(root, "devices/disk"), "bus"),
        filesystems=_names(_supported_element(root, "devices/filesystem"), "driverType"),
        video_models=_names(_supported_element(root, "devices/video"), "modelType"),
        tpm_models=_names(tpm, "model"),
        tpm_backends=_names(tpm, "backendModel"),
        tpm_versions=_names(tpm, "backendVersion"),
        launch_security=security,
        sev_guests=_guests(sev, "maxGuests"),
        sev_es_guests=_guests(sev, "maxESGuests"),
        tdx="tdx" in security or _supported_element(root, "features/tdx") is not None,
    )


def _supported_element(root: Element, path: str) -> Element | None:
    element = root.find(path)
    return element if element is not None and element.get("supported") == "yes" else None


def _names(parent: Element | None, enum: str) -> tuple[str, ...]:
    """Return the values of `<enum name='...'><value>...</value></enum>` below `parent`, sorted."""
    values = () if parent is None else parent.iterfind(f"enum[@name='{enum}']/value")
    return tuple(sorted({value.text.strip() for value in values if value.text}))


def _as_cpu(host_model: Element | None, arch: str) -> str | None:
    if host_model is None or not host_model.findtext("model"):
        return None
    cpu = Element("cpu")
    ElementTree.SubElement(cpu, "arch").text = arch
    cpu.extend(child for child in host_model if child.tag in ("model", "vendor", "feature"))
    return ElementTree.tostring(cpu, encoding="unicode")


def _guests(sev: Element | None, name: str) -> int | None:
    text = None if sev is None else sev.findtext(name)
    return None if text is None else elements.number(text, f"{DOCUMENT}: sev {name}")
