"""The facts of a document of `virConnectGetDomainCapabilities`.

Source: https://libvirt.org/formatdomaincaps.html
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from compute_agent.discovery.errors import FactMalformed
from compute_agent.discovery.libvirt import elements
from compute_agent.discovery.libvirt.facts import DomainCapabilities

DOCUMENT: Final = "getDomainCapabilities"


def parse(text: str) -> DomainCapabilities:
    """Return the facts of a document.

    :raises FactMalformed: it is not XML, names no architecture or kind of guests, or a number in it
        cannot be read.
    """
    root = elements.document(text, DOCUMENT)
    arch, virt_type = root.findtext("arch"), root.findtext("domain")
    if not arch or not virt_type:
        raise FactMalformed(DOCUMENT, text, "elements arch and domain")
    host_model = _supported_element(root, "cpu/mode[@name='host-model']")
    tpm = _supported_element(root, "devices/tpm")
    firmwares = _sorted_names(elements.values(root.find("os"), "firmware"))
    security = _sorted_names(
        elements.values(_supported_element(root, "features/launchSecurity"), "sectype")
    )
    return DomainCapabilities(
        arch=arch,
        machine=root.findtext("machine") or None,
        virt_type=virt_type,
        host_model_xml=_as_cpu(host_model, arch),
        firmwares=firmwares,
        secure_boot="efi" in firmwares
        and "yes" in elements.values(_supported_element(root, "os/loader"), "secure"),
        disk_buses=_sorted_names(elements.values(_supported_element(root, "devices/disk"), "bus")),
        filesystems=_sorted_names(
            elements.values(_supported_element(root, "devices/filesystem"), "driverType")
        ),
        video_models=_sorted_names(
            elements.values(_supported_element(root, "devices/video"), "modelType")
        ),
        tpm_models=_sorted_names(elements.values(tpm, "model")),
        tpm_backends=_sorted_names(elements.values(tpm, "backendModel")),
        tpm_versions=_sorted_names(elements.values(tpm, "backendVersion")),
        launch_security=security,
        sev_guests=_guests(root, "maxGuests"),
        sev_es_guests=_guests(root, "maxESGuests"),
        tdx="tdx" in security or elements.is_supported(root.find("features/tdx")),
    )


def _supported_element(root: Element, path: str) -> Element | None:
    element = root.find(path)
    return element if elements.is_supported(element) else None


def _sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _as_cpu(host_model: Element | None, arch: str) -> str | None:
    if host_model is None or not host_model.findtext("model"):
        return None
    cpu = Element("cpu")
    ElementTree.SubElement(cpu, "arch").text = arch
    cpu.extend(child for child in host_model if child.tag in ("model", "vendor", "feature"))
    return ElementTree.tostring(cpu, encoding="unicode")


def _guests(root: Element, name: str) -> int | None:
    sev = _supported_element(root, "features/sev")
    text = None if sev is None else sev.findtext(name)
    return None if text is None else elements.number(text, f"{DOCUMENT}: sev {name}")
