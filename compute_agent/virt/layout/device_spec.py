"""Device specifications: which PCI devices guests may get, and what they count as.

    {"vendor_id": "10de", "product_id": "25b6", "address": "*:84:00.*", "resource_class": "PGPU",
     "traits": "CUSTOM_BLUE,CUSTOM_GREEN"}

A VF is matched by its own address or by the exact address of its PF.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from oslo_log import log

from compute_agent.discovery.facts import PciAddress, PciDevice
from compute_agent.virt.layout.device_entries import DeviceEntry, class_of_ids, entries

LOG = log.getLogger(__name__)

_OPTION: Final = "[pci]device_spec"
_MATCH_KEYS: Final = frozenset({"vendor_id", "product_id", "address", "devname"})
_TAGS: Final = frozenset(
    (
        "physical_network",
        "trusted",
        "remote_managed",
        "managed",
        "live_migratable",
        "one_time_use",
        "resource_class",
        "traits",
    )
)
_ADDRESS_PARTS: Final = ("domain", "bus", "slot", "function")
_WIDTHS: Final = (4, 2, 2, 1)
_LARGEST: Final = (0xFFFFFFFF, 0xFF, 0x1F, 7)
_NUMBER = re.compile(r"[0-9a-f]+")
_GLOB = re.compile(r"(?:[0-9a-f*?]|\[!?[0-9a-f-]+\])+")
_SPLIT = re.compile(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)\.([0-7])")


class AddressPattern(NamedTuple):
    """Four regular expressions, each for the beginning of one part of an address."""

    domain: str = ".*"
    bus: str = ".*"
    slot: str = ".*"
    function: str = ".*"

    def matches(self, address: PciAddress) -> bool:
        parts = _address_parts(address)
        patterns = (self.domain, self.bus, self.slot, self.function)
        return all(
            re.match(pattern, part, re.IGNORECASE)
            for pattern, part in zip(patterns, parts, strict=True)
        )


class DeviceSpec(NamedTuple):
    """One entry of [pci]device_spec; None = the entry does not say."""

    entry: str = ""
    """The entry as it was written."""
    vendor_id: str | None = None
    product_id: str | None = None
    address: AddressPattern = AddressPattern()
    exact_address: bool = False
    """The address has no wildcard, so naming a PF names its VFs too."""
    devname: str | None = None
    physical_network: str | None = None
    is_trusted: bool = False
    remote_managed: bool = False
    is_managed: bool = True
    live_migratable: bool | None = None
    one_time_use: bool = False
    resource_class: str | None = None
    """Normalised."""
    traits: tuple[str, ...] = ()
    """Normalised and sorted."""

    def matches(self, device: PciDevice, interfaces: Iterable[str] = ()) -> bool:
        """Whether this entry speaks of the device.

        :param interfaces: network interfaces of the device.
        """
        if self.vendor_id not in (None, device.vendor_id):
            return False
        if self.product_id not in (None, device.product_id):
            return False
        if self.devname is not None:
            return self.devname in interfaces
        if self.address.matches(device.address):
            return True
        return (
            self.exact_address and device.physfn is not None and self.address.matches(device.physfn)
        )

    def class_of(self, device: PciDevice) -> str:
        """Return the resource class the device counts under."""
        if self.resource_class is not None:
            return self.resource_class
        return class_of_ids(device.vendor_id, device.product_id)


def custom_name(text: str) -> str:
    """Return `CUSTOM_` and the text in upper case, every run of other characters one `_`."""
    return "CUSTOM_" + re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")


def parse_device_specs(values: Iterable[str], *, report: bool) -> tuple[DeviceSpec, ...]:
    """Parse the values of [pci]device_spec: each a JSON dict or a list of dicts.

    :param report: the devices go to placement, which needs more than a device name.
    :raises InvalidConfiguration: with the entry and what is wrong with it.
    """
    return tuple(
        _spec(entry, report=report) for value in values for entry in entries(_OPTION, value)
    )


def _spec(entry: DeviceEntry, *, report: bool) -> DeviceSpec:
    for key in entry.unknown_keys(_MATCH_KEYS | _TAGS):
        LOG.warning("%s: %s is not a known key and is ignored in %s", _OPTION, key, entry)
    body = entry.body
    if "address" in body and "devname" in body:
        raise entry.refusal("address and devname exclude each other")
    if report and "devname" in body:
        raise entry.refusal(
            "with [pci]report_in_placement a device is named by address or by vendor_id and "
            "product_id, as the name of an interface may change"
        )
    is_used_once = entry.flag("one_time_use") or False
    if is_used_once and not report:
        raise entry.refusal(
            "one_time_use needs [pci]report_in_placement: a device that was used is remembered by "
            "its reserved inventory"
        )
    address = body.get("address")
    return DeviceSpec(
        entry=str(entry),
        vendor_id=entry.hex_id("vendor_id", is_pattern=True),
        product_id=entry.hex_id("product_id", is_pattern=True),
        address=_address_pattern(entry, address),
        exact_address=isinstance(address, str) and _is_exact(address),
        devname=entry.text("devname"),
        physical_network=entry.text("physical_network"),
        is_trusted=entry.flag("trusted") or False,
        remote_managed=entry.flag("remote_managed") or False,
        is_managed=entry.flag("managed") is not False,
        live_migratable=entry.flag("live_migratable"),
        one_time_use=is_used_once,
        resource_class=entry.resource_class(),
        traits=entry.traits(),
    )


def _address_pattern(entry: DeviceEntry, address: Any) -> AddressPattern:
    if address is None:
        return AddressPattern()
    if isinstance(address, str):
        return AddressPattern(*map(fnmatch.translate, _split_glob(entry, address)))
    if not isinstance(address, dict) or address.keys() - set(_ADDRESS_PARTS):
        raise entry.refusal(f"address must be a string or a dict of {', '.join(_ADDRESS_PARTS)}")
    for part, pattern in address.items():
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise entry.refusal(f"{part} {pattern!r} is not a regular expression ({error})") from (
                error
            )
    return AddressPattern(**address)


def _split_glob(entry: DeviceEntry, address: str) -> list[str]:
    head, _dot, function = address.partition(".")
    parts = head.split(":")
    padded_parts = [""] * (3 - len(parts)) + parts + [function]
    glob_parts = []
    for name, part, width, largest in zip(
        _ADDRESS_PARTS, padded_parts[: len(_WIDTHS)], _WIDTHS, _LARGEST, strict=True
    ):
        text = (part or "*").strip().lower()
        if len(parts) > 3 or not _GLOB.fullmatch(text):
            raise entry.refusal(f"address {address!r} is not <domain>:<bus>:<slot>.<function>")
        is_number = _NUMBER.fullmatch(text) is not None
        if is_number and int(text, 16) > largest:
            raise entry.refusal(f"address {address!r}: {name} {text} is above {largest:x}")
        glob_parts.append(text.zfill(width) if is_number else text)
    return glob_parts


def _is_exact(address: str) -> bool:
    return _SPLIT.fullmatch(address.strip().lower()) is not None


def _address_parts(address: PciAddress) -> tuple[str, str, str, str]:
    match = _SPLIT.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not a PCI address such as 0000:81:00.0")
    domain, bus, slot, function = match.groups()
    return domain, bus, slot, function
