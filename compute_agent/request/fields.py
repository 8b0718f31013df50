"""Typed fields of JSON, with errors that name the field by its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compute_agent.request.errors import InvalidRequest
from compute_agent.request.extra_specs import amount, resource_class, trait, uuid_text


class Fields:
    """One JSON object; absent and null fields read as empty.

    :param path: the path of the object in the whole document, for messages.
    """

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise InvalidRequest(path or "the specification", value, "an object with named fields")
        self._value: Mapping[str, Any] = value
        self._path = path

    def name(self, field: str) -> str:
        """Return the path of a field."""
        return f"{self._path}.{field}" if self._path else field

    def has(self, field: str) -> bool:
        """Return whether the field is there and not null."""
        return self._value.get(field) is not None

    def text(self, field: str, default: str = "") -> str:
        """Return a string; a number is taken as its digits."""
        value = self._value.get(field)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidRequest(self.name(field), value, "a string")
        text = str(value)
        if not _is_encodable(text):
            raise InvalidRequest(self.name(field), value, "a string of characters")
        return text

    def number(self, field: str, default: int = 0) -> int:
        """Return a whole number of at least 0."""
        value = self._value.get(field)
        if value is None:
            return default
        if isinstance(value, bool):
            raise InvalidRequest(self.name(field), value, "a whole number of at least 0")
        return amount(self.name(field), value)

    def flag(self, field: str) -> bool:
        """Return a boolean, False if absent."""
        value = self._value.get(field, False)
        if not isinstance(value, bool | None):
            raise InvalidRequest(self.name(field), value, "true or false")
        return bool(value)

    def fields(self, field: str) -> Fields:
        """Return an object, empty if absent."""
        value = self._value.get(field)
        return Fields({} if value is None else value, self.name(field))

    def objects(self, field: str) -> list[Fields]:
        """Return a list of objects."""
        return [
            Fields(item, f"{self.name(field)}[{index}]")
            for index, item in enumerate(self.list(field))
        ]

    def list(self, field: str) -> Sequence[Any]:
        """Return a list of anything, empty if absent."""
        value = self._value.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise InvalidRequest(self.name(field), value, "a list")
        return value

    def lists(self, field: str) -> dict[str, Sequence[Any]]:
        """Return an object of lists by name."""
        inner = self.fields(field)
        return {key: inner.list(key) for key in inner._value}

    def texts(self, field: str) -> frozenset[str]:
        """Return a list of strings as a set."""
        return frozenset(Fields({field: item}, self._path).text(field) for item in self.list(field))

    def strings(self, field: str) -> dict[str, str]:
        """Return an object of strings by name."""
        inner = self.fields(field)
        return {key: inner.text(key) for key in inner._value}

    def resources(self, field: str) -> dict[str, int]:
        """Return amounts by resource class."""
        inner = self.fields(field)
        return {resource_class(inner.name(key), key): inner.number(key) for key in inner._value}

    def traits(self, field: str) -> frozenset[str]:
        """Return a list of traits as a set."""
        return frozenset(trait(self.name(field), item) for item in self.texts(field))

    def trait_sets(self, field: str) -> frozenset[frozenset[str]]:
        """Return traits that are all required; an entry that is a list means any of them."""
        sets = set()
        for item in self.list(field):
            names = item if isinstance(item, list | tuple) else [item]
            sets.add(frozenset(trait(self.name(field), str(name)) for name in names))
        return frozenset(sets)

    def uuid_sets(self, field: str) -> frozenset[frozenset[str]]:
        """Return sets of uuids, each written as a list or as a comma-separated string."""
        sets = set()
        for entry in self.list(field):
            uuids = entry if isinstance(entry, list | tuple) else str(entry).split(",")
            sets.add(frozenset(uuid_text(self.name(field), str(item)) for item in uuids))
        return frozenset(sets)

    def uuid(self, field: str) -> str | None:
        """Return a uuid, `None` if absent or empty."""
        value = self.text(field)
        return uuid_text(self.name(field), value) if value else None

    def uuids(self, field: str) -> frozenset[str]:
        """Return a list of uuids as a set."""
        return frozenset(uuid_text(self.name(field), item) for item in self.texts(field))

    def as_mapping(self) -> Mapping[str, Any]:
        """Return the whole object."""
        return self._value


def _is_encodable(text: str) -> bool:
    """Return whether a text can be sent: JSON may have halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
