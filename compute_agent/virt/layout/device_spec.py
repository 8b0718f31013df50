"""Device specifications: which PCI devices guests may get, and what they count as.

    {"vendor_id": "10de", "product_id": "25b6", "address": "*:84:00.*", "resource_class": "PGPU",
     "traits": "CUSTOM_BLUE,CUSTOM_GREEN"}

A VF is matched by its own address or by the exact address of its PF.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import os_resource_classes
import os_traits
from msgspec import Struct
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress, PciDevice

_HEX_ID = r"[0-9a-fA-F]{4}"
_YES: Final = frozenset({"yes", "true", "1", "on", "y", "t"})
_NO: Final = frozenset({"no", "false", "0", "off", "n", "f"})

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
_NUMBER = r"[0-9a-f]+"
_GLOB = r"(?:[0-9a-f*?]|\[!?[0-9a-f-]+\])+"
_EXACT = r"[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\.[0-7]"


class DeviceEntry:
    """One entry of an option, which the errors name with the entry as it was written."""

    def __init__(self, option: str, body: Any) -> None:
        self._option = option
        if not isinstance(body, dict):
            raise errors.InvalidConfiguration(
                f"{option}: {json.dumps(body)}: an entry must be a dict, for example "
                '{"vendor_id": "8086", "product_id": "10ed"}.'
            )
        self.body: Mapping[str, Any] = body

    def __str__(self) -> str:
        return json.dumps(self.body)

    def refusal(self, reason: str) -> errors.InvalidConfiguration:
        """Return the error that the entry cannot be used."""
        return errors.InvalidConfiguration(f"{self._option}: {self}: {reason}.")

    def unknown_keys(self, known_keys: Collection[str]) -> list[str]:
        return sorted(self.body.keys() - frozenset(known_keys))

    def hex_id(self, key: str, *, is_pattern: bool = False) -> str | None:
        """Return a vendor or product as four lower-case hex digits; None: the entry names none.

        :param is_pattern: `*` is any, and 0x and blanks around the digits are allowed.
        :raises InvalidConfiguration: it is neither.
        """
        value = self.body.get(key)
        if value is None or (is_pattern and value == "*"):
            return None
        text = value.strip().removeprefix("0x") if is_pattern and isinstance(value, str) else value
        if not isinstance(text, str) or not re.fullmatch(_HEX_ID, text):
            raise self.refusal(f"{key} {value!r} is not four hex digits such as 10de")
        return text.lower()

    def text(self, key: str) -> str | None:
        """Return a text; None: the entry has none, or an empty one."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refusal(f"{key} must be a text, not {value!r}")
        return (value or "").strip() or None

    def flag(self, key: str) -> bool | None:
        """Return a value that is yes or no; None: the entry has none."""
        value = self.body.get(key)
        if value is None:
            return None
        text = str(value).strip().lower()
        if text not in _YES | _NO:
            raise self.refusal(f"{key} must be yes or no, not {value!r}")
        return text in _YES

    def one_of(self, key: str, choices: Collection[str], default: str) -> str:
        """Return one of several texts."""
        value = self.body.get(key, default)
        if value not in choices:
            expected = ", ".join(choice for choice in choices if choice)
            raise self.refusal(f"{key} is {value!r}, one of {expected} was expected")
        return str(value)

    def resource_class(self) -> str | None:
        """Return the class that the entry names, normalised."""
        name = self.text("resource_class")
        return normalise_resource_class(name) if name else None

    def traits(self) -> tuple[str, ...]:
        """Return the traits that the entry names, normalised and sorted."""
        value = self.body.get("traits", "")
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self.refusal("traits must be names separated by commas")
        return tuple(sorted({normalise_trait(name) for name in names if name.strip()}))


def entries(option: str, text: str) -> list[DeviceEntry]:
    """Return the entries of one value: a dict, or a list of dicts.

    :raises InvalidConfiguration: it is something else.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise errors.InvalidConfiguration(
            f"{option} = {text} is not JSON ({error}). Write a dict such as "
            '{"vendor_id": "8086", "product_id": "10ed"}, or a list of them.'
        ) from error
    bodies = document if isinstance(document, list) else [document]
    return [DeviceEntry(option, body) for body in bodies]


def class_of_ids(vendor_id: str, product_id: str) -> str:
    """Return the class of a device that no entry gives one."""
    return f"CUSTOM_PCI_{vendor_id}_{product_id}".upper()


def normalise_resource_class(name: str) -> str:
    """Upper case, other characters `_`, `CUSTOM_` in front unless it is a standard class."""
    return _normalise(name, os_resource_classes.STANDARDS)


def normalise_trait(name: str) -> str:
    """Upper case, other characters `_`, `CUSTOM_` in front unless it is a standard trait."""
    return _normalise(name, frozenset(os_traits.get_traits()))


def _normalise(name: str, standards: Iterable[str]) -> str:
    text = re.sub(r"[^A-Z0-9_]", "_", name.strip().upper())
    if text in standards or text.startswith("CUSTOM_"):
        return text
    return f"CUSTOM_{text}"


class AddressPattern(Struct, frozen=True):
    """Four regular expressions, each for the beginning of one part of an address."""

    domain: str = ".*"
    bus: str = ".*"
    slot: str = ".*"
    function: str = ".*"

    def matches(self, address: PciAddress) -> bool:
        parts = re.split("[:.]", address)
        patterns = (self.domain, self.bus, self.slot, self.function)
        return all(
            re.match(pattern, part, re.IGNORECASE)
            for pattern, part in zip(patterns, parts, strict=True)
        )


class DeviceSpec(Struct, frozen=True):
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
        exact_address=isinstance(address, str)
        and re.fullmatch(_EXACT, address.strip().lower()) is not None,
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
        if len(parts) > 3 or not re.fullmatch(_GLOB, text):
            raise entry.refusal(f"address {address!r} is not <domain>:<bus>:<slot>.<function>")
        is_number = re.fullmatch(_NUMBER, text) is not None
        if is_number and int(text, 16) > largest:
            raise entry.refusal(f"address {address!r}: {name} {text} is above {largest:x}")
        glob_parts.append(text.zfill(width) if is_number else text)
    return glob_parts
