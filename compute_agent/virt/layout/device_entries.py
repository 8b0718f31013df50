"""Entries of [pci]device_spec and [pci]alias, whose values are read or refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import os_resource_classes
import os_traits

from compute_agent import errors

_HEX_ID = re.compile(r"[0-9a-fA-F]{4}")
_YES: Final = frozenset({"yes", "true", "1", "on", "y", "t"})
_NO: Final = frozenset({"no", "false", "0", "off", "n", "f"})


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
        if not isinstance(text, str) or not _HEX_ID.fullmatch(text):
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
        if value is None or isinstance(value, bool):
            return value
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
