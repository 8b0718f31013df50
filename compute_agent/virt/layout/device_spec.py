"""Device specifications: which PCI devices guests may get, and what they count as.

    {"vendor_id": "10de", "product_id": "25b6", "address": "*:84:00.*", "resource_class": "PGPU",
     "traits": "CUSTOM_BLUE,CUSTOM_GREEN"}

A VF is matched by its own address or by the exact address of its PF.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import os_resource_classes
import os_traits
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress, PciDevice

LOG = log.getLogger(__name__)

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
_HEX_ID = re.compile(r"(?:0x)?[0-9a-fA-F]{4}")
_SPLIT = re.compile(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]+)\.([0-7])")
_YES: Final = frozenset({"yes", "true", "1", "on", "y", "t"})
_NO: Final = frozenset({"no", "false", "0", "off", "n", "f"})


class AddressPattern(NamedTuple):
    """Four regular expressions, each for one whole part of an address."""

    domain: str = ".*"
    bus: str = ".*"
    slot: str = ".*"
    function: str = ".*"

    def matches(self, address: PciAddress) -> bool:
        parts = _address_parts(address)
        patterns = (self.domain, self.bus, self.slot, self.function)
        return all(
            re.fullmatch(pattern, part, re.IGNORECASE)
            for pattern, part in zip(patterns, parts, strict=True)
        )


class DeviceSpec(NamedTuple):
    """One entry of [pci]device_spec; None = the entry does not say."""

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
        return class_of_ids(device)


def class_of_ids(device: PciDevice) -> str:
    """Return the class of a device that no specification gives one."""
    return f"CUSTOM_PCI_{device.vendor_id}_{device.product_id}".upper()


def normalise_resource_class(name: str) -> str:
    """Upper case, other characters `_`, `CUSTOM_` in front unless it is a standard class."""
    return _normalise(name, os_resource_classes.STANDARDS)


def normalise_trait(name: str) -> str:
    """Upper case, other characters `_`, `CUSTOM_` in front unless it is a standard trait."""
    return _normalise(name, frozenset(os_traits.get_traits()))


def custom_name(text: str) -> str:
    """Return `CUSTOM_` and the text in upper case, every run of other characters one `_`."""
    return "CUSTOM_" + re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")


def parse_device_specs(values: Iterable[str], *, report: bool) -> tuple[DeviceSpec, ...]:
    """Parse the values of [pci]device_spec: each a JSON dict or a list of dicts.

    :param report: the devices go to placement, which needs more than a device name.
    :raises InvalidConfiguration: with the entry and what is wrong with it.
    """
    specs: list[DeviceSpec] = []
    for value in values:
        try:
            document = json.loads(value)
        except json.JSONDecodeError as error:
            raise errors.InvalidConfiguration(
                f"[pci]device_spec = {value} is not JSON ({error}). Write a dict such as "
                '{"vendor_id": "8086", "product_id": "10ed"}, or a list of them.'
            ) from error
        entries = document if isinstance(document, list) else [document]
        specs.extend(_parse_entry(entry, report=report) for entry in entries)
    return tuple(specs)


def _parse_entry(entry: Any, *, report: bool) -> DeviceSpec:
    if not isinstance(entry, dict):
        raise _invalid(entry, "an entry must be a dict")
    for key in sorted(entry.keys() - _MATCH_KEYS - _TAGS):
        LOG.warning("[pci]device_spec: %s is not a known key and is ignored in %s", key, entry)
    if "address" in entry and "devname" in entry:
        raise _invalid(entry, "address and devname exclude each other")
    if report and "devname" in entry:
        raise _invalid(
            entry,
            "with [pci]report_in_placement a device is named by address or by vendor_id and "
            "product_id, as the name of an interface may change",
        )
    address = entry.get("address")
    return DeviceSpec(
        vendor_id=_hex_id(entry, "vendor_id"),
        product_id=_hex_id(entry, "product_id"),
        address=_address_pattern(entry, address),
        exact_address=isinstance(address, str) and _is_exact(address),
        devname=entry.get("devname"),
        physical_network=entry.get("physical_network"),
        is_trusted=_flag(entry, "trusted") or False,
        remote_managed=_flag(entry, "remote_managed") or False,
        is_managed=_flag(entry, "managed") is not False,
        live_migratable=_flag(entry, "live_migratable"),
        one_time_use=_flag(entry, "one_time_use") or False,
        resource_class=_resource_class(entry),
        traits=_traits(entry),
    )


def _address_pattern(entry: Mapping[str, Any], address: Any) -> AddressPattern:
    if address is None:
        return AddressPattern()
    if isinstance(address, str):
        return AddressPattern(*(_glob_part(part) for part in _split_glob(entry, address)))
    if not isinstance(address, dict) or address.keys() - set(_ADDRESS_PARTS):
        raise _invalid(entry, f"address must be a string or a dict of {', '.join(_ADDRESS_PARTS)}")
    for part, pattern in address.items():
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise _invalid(
                entry, f"{part} {pattern!r} is not a regular expression ({error})"
            ) from error
    return AddressPattern(**address)


def _split_glob(entry: Mapping[str, Any], address: str) -> list[str]:
    head, _dot, function = address.partition(".")
    parts = head.split(":")
    if len(parts) > 3:
        raise _invalid(entry, f"address {address!r} is not <domain>:<bus>:<slot>.<function>")
    padded_parts = [""] * (3 - len(parts)) + parts + [function]
    widths = (4, 2, 2, 1)
    glob_parts = []
    for part, width in zip(padded_parts, widths, strict=True):
        text = (part or "*").strip().lower()
        if not re.fullmatch(r"[0-9a-f*?\[\]!-]+", text):
            raise _invalid(entry, f"address {address!r} is not <domain>:<bus>:<slot>.<function>")
        glob_parts.append(text.zfill(width) if re.fullmatch("[0-9a-f]+", text) else text)
    return glob_parts


def _glob_part(part: str) -> str:
    return fnmatch.translate(part)


def _is_exact(address: str) -> bool:
    return _SPLIT.fullmatch(address.strip().lower()) is not None


def _address_parts(address: PciAddress) -> tuple[str, str, str, str]:
    match = _SPLIT.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not a PCI address such as 0000:81:00.0")
    domain, bus, slot, function = match.groups()
    return domain, bus, slot, function


def _hex_id(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is None or value == "*":
        return None
    if not isinstance(value, str) or not _HEX_ID.fullmatch(value):
        raise _invalid(entry, f"{key} {value!r} is not four hex digits")
    return value.lower().removeprefix("0x")


def _flag(entry: Mapping[str, Any], key: str) -> bool | None:
    value = entry.get(key)
    if value is None or isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise _invalid(entry, f"{key} must be yes or no, not {value!r}")


def _resource_class(entry: Mapping[str, Any]) -> str | None:
    value = entry.get("resource_class")
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise _invalid(entry, "resource_class must be the name of a resource class")
    return normalise_resource_class(value)


def _traits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    value = entry.get("traits", "")
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _invalid(entry, "traits must be names separated by commas")
    return tuple(sorted({normalise_trait(name) for name in names if name.strip()}))


def _normalise(name: str, standards: Iterable[str]) -> str:
    text = re.sub(r"[^A-Z0-9_]", "_", name.strip().upper())
    if text in standards or text.startswith("CUSTOM_"):
        return text
    return f"CUSTOM_{text}"


def _invalid(entry: object, reason: str) -> errors.InvalidConfiguration:
    return errors.InvalidConfiguration(f"[pci]device_spec: {json.dumps(entry)}: {reason}.")
