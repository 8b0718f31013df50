"""Reader of one provider config file: YAML, its version, its shape, its names."""

from __future__ import annotations

import logging
import re
import uuid as uuidlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from compute_agent.programs.decoding import LARGEST, Misfit, convert, matching
from compute_agent.provider_config.additions import (
    EVERY_COMPUTE_NODE,
    ProviderConfig,
    ProviderConfigException,
)
from compute_agent.provider_tree.inventory import complete_record
from compute_agent.state.documents import FileUnusable, read_yaml

LOG = logging.getLogger(__name__)

_MAX: Final = 2147483647
_UUID: Final = r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"
_Identifier: TypeAlias = Annotated[
    str, matching(rf"{re.escape(EVERY_COMPUTE_NODE)}|{_UUID}", "a uuid or $COMPUTE_NODE")
]
_Name: TypeAlias = Annotated[str, matching(r"(?s:.{1,200})", "1 to 200 characters")]
_CustomName: TypeAlias = Annotated[
    str,
    matching("(?=CUSTOM_)[A-Z0-9_]{1,255}", "1 to 255 of A-Z, 0-9 and _ that start with CUSTOM_"),
]
_Version: TypeAlias = Annotated[str, matching(r"1\.([0-9]|[1-9][0-9]+)", 'a version such as "1.0"')]
# YAML may write a whole number as 8.0
_Amount: TypeAlias = (
    Annotated[int, Meta(ge=0, le=_MAX)] | Annotated[float, Meta(ge=0, le=_MAX, multiple_of=1)]
)
_Unit: TypeAlias = (
    Annotated[int, Meta(ge=1, le=_MAX)] | Annotated[float, Meta(ge=1, le=_MAX, multiple_of=1)]
)


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    total: _Unit
    reserved: _Amount | UnsetType = UNSET
    min_unit: _Unit | UnsetType = UNSET
    max_unit: _Unit | UnsetType = UNSET
    step_size: _Unit | UnsetType = UNSET
    allocation_ratio: Annotated[float, Meta(ge=0, le=LARGEST)] | UnsetType = UNSET


class _Identification(Struct, frozen=True, forbid_unknown_fields=True):
    uuid: _Identifier | UnsetType = UNSET
    name: _Name | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.uuid is UNSET) is (self.name is UNSET):
            raise ValueError("it needs exactly one of uuid and name")


class _Open(Struct, frozen=True, kw_only=True):
    """An object that may have keys of a later version, all but one."""

    source_file: Any = field(default=UNSET, name="__source_file")

    def __post_init__(self) -> None:
        if self.source_file is not UNSET:
            raise ValueError("__source_file is a reserved key")


class _Inventories(_Open, frozen=True):
    additional: list[dict[_CustomName, _Record]] = []


class _Traits(_Open, frozen=True):
    additional: frozenset[_CustomName] = frozenset()


class _Provider(_Open, frozen=True, kw_only=True):
    identification: _Identification
    inventories: _Inventories = _Inventories()
    traits: _Traits = _Traits()


class _Meta(Struct, frozen=True):
    schema_version: _Version


class _File(_Open, frozen=True, kw_only=True):
    meta: _Meta
    providers: list[_Provider] = []


_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)")


def read(path: Path) -> list[ProviderConfig]:
    """Read one file.

    :raises ProviderConfigException: it cannot be used; names the file, the place and the reason.
    """
    document = _parse(path)
    _check_version(path, document)
    try:
        providers = convert(document, _File).providers
    except Misfit as error:
        raise _unusable(path, str(error)) from error
    configs = []
    for entry in providers:
        config = _provider(path, entry)
        if config.inventories or config.traits:
            configs.append(config)
        else:
            LOG.warning(
                "%s adds nothing to the provider with %s: the entry is ignored. Remove it.",
                path,
                config.identification,
            )
    return configs


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        document = read_yaml(path)
    except FileNotFoundError as error:
        raise _unusable(path, f"it cannot be read ({error.strerror})") from error
    except FileUnusable as error:
        raise _unusable(path, f"it {error}") from error
    if not isinstance(document, dict):
        raise _unusable(path, "it has no meta section with a schema_version")
    return document


def _check_version(path: Path, document: Mapping[str, Any]) -> None:
    meta = document.get("meta")
    version = meta.get("schema_version") if isinstance(meta, dict) else None
    if version is None:
        raise _unusable(path, "it has no schema_version; write meta: {schema_version: '1.0'}")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise _unusable(path, f"its schema_version {version!r} is not a string such as '1.0'")
    if match["major"] != "1":
        raise _unusable(path, f"its schema_version is {version}, and only 1.x is understood")
    if int(match["minor"]) > 0:
        LOG.warning("%s has schema version %s: fields newer than 1.0 are ignored.", path, version)


def _provider(path: Path, entry: _Provider) -> ProviderConfig:
    # a uuid, and the placeholder for every node, are meant as such under either key
    identifier = entry.identification.uuid or entry.identification.name or ""
    is_uuid = re.fullmatch(_UUID, identifier) is not None
    uuid = str(uuidlib.UUID(identifier)) if is_uuid else None
    if identifier == EVERY_COMPUTE_NODE:
        uuid = EVERY_COMPUTE_NODE
    inventories: dict[str, Any] = {}
    for additional in entry.inventories.additional:
        for resource_class, record in additional.items():
            if resource_class in inventories:
                raise _unusable(path, f"it adds {resource_class} twice to one provider")
            inventories[resource_class] = complete_record(to_builtins(record), operator_keys=())
    return ProviderConfig(
        str(path),
        uuid=uuid,
        name=None if uuid else identifier,
        inventories=inventories,
        traits=tuple(sorted(entry.traits.additional)),
    )


def _unusable(path: Path, reason: str) -> ProviderConfigException:
    return ProviderConfigException(
        f"The provider config file {path} cannot be used: {reason}. Correct or remove the file."
    )
