"""Reader of one provider config file: YAML, its version, its shape, its names."""

from __future__ import annotations

import logging
import re
import uuid as uuidlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from compute_agent.provider_config.additions import (
    EVERY_COMPUTE_NODE,
    ProviderConfig,
    ProviderConfigException,
)
from compute_agent.provider_tree.inventory import complete_record
from compute_agent.state.documents import FileUnusable, read_yaml
from compute_agent.state.shapes import (
    NUMBER,
    Check,
    Shape,
    is_not,
    list_of,
    map_of,
    object_of,
    text_like,
)

LOG = logging.getLogger(__name__)

_MAX: Final = 2147483647
_UUID: Final = r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _amount(least: int) -> Check:
    expectation = f"a whole number from {least} to {_MAX}"

    def check(value: Any) -> str | None:
        fits = _is_whole(value) and least <= value <= _MAX
        return None if fits else is_not(value, expectation)

    return check


def _ratio(value: Any) -> str | None:
    fits = NUMBER(value) is None and value >= 0
    return None if fits else is_not(value, "a number from 0 on")


def _refuse_reserved(_value: Any) -> str:
    return " is a reserved key"


def _identification(value: Any) -> str | None:
    misfit = _IDENTIFIED(value)
    if misfit is None and len(value) != 1:
        return " needs exactly one of uuid and name"
    return misfit


_NAME: Final = text_like("[A-Z0-9_]{1,255}", "1 to 255 of A-Z, 0-9 and _")
_IDENTIFIED: Final = object_of(
    {},
    {
        "uuid": text_like(rf"{re.escape(EVERY_COMPUTE_NODE)}|{_UUID}", "a uuid or $COMPUTE_NODE"),
        "name": text_like(r"(?s:.{1,200})", "1 to 200 characters"),
    },
    is_closed=True,
)
_RECORD: Final = object_of(
    {"total": _amount(1)},
    {
        "reserved": _amount(0),
        "min_unit": _amount(1),
        "max_unit": _amount(1),
        "step_size": _amount(1),
        "allocation_ratio": _ratio,
    },
    is_closed=True,
)
_SOURCE_FILE: Final = {"__source_file": _refuse_reserved}
_PROVIDER: Final = object_of(
    {"identification": _identification},
    {
        "inventories": object_of(
            {}, {"additional": list_of(map_of(_RECORD, _NAME)), **_SOURCE_FILE}
        ),
        "traits": object_of({}, {"additional": list_of(_NAME), **_SOURCE_FILE}),
        **_SOURCE_FILE,
    },
)
_META: Final = object_of(
    {"schema_version": text_like(r"1\.([0-9]|[1-9][0-9]+)", 'a version such as "1.0"')}
)
SHAPE: Final = Shape(
    "provider configs",
    object_of({"meta": _META}, {"providers": list_of(_PROVIDER), **_SOURCE_FILE}),
)
"""Unknown keys are allowed where a later version may bring new ones, and nowhere else."""

_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)")


def read(path: Path) -> list[ProviderConfig]:
    """Read one file.

    :raises ProviderConfigException: it cannot be used; names the file, the place and the reason.
    """
    document = _parse(path)
    _check_version(path, document)
    misfit = SHAPE.misfit(document)
    if misfit is not None:
        raise _unusable(path, misfit)
    configs = []
    for entry in document.get("providers", ()):
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


def _provider(path: Path, entry: Mapping[str, Any]) -> ProviderConfig:
    identification = entry["identification"]
    # a uuid, and the placeholder for every node, are meant as such under either key
    identifier = identification.get("uuid") or identification.get("name")
    is_uuid = re.fullmatch(_UUID, identifier) is not None
    uuid = str(uuidlib.UUID(identifier)) if is_uuid else None
    if identifier == EVERY_COMPUTE_NODE:
        uuid = EVERY_COMPUTE_NODE
    inventories: dict[str, Any] = {}
    for resource_class, record in _records(entry):
        _check_custom(path, resource_class, "resource class")
        if resource_class in inventories:
            raise _unusable(path, f"it adds {resource_class} twice to one provider")
        inventories[resource_class] = complete_record(record, operator_keys=())
    traits = entry.get("traits", {}).get("additional", ())
    for trait in traits:
        _check_custom(path, trait, "trait")
    return ProviderConfig(
        str(path),
        uuid=uuid,
        name=None if uuid else identifier,
        inventories=inventories,
        traits=tuple(sorted(set(traits))),
    )


def _records(entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for additional in entry.get("inventories", {}).get("additional", ()):
        yield from additional.items()


def _check_custom(path: Path, name: str, kind: str) -> None:
    if not name.startswith("CUSTOM_"):
        raise _unusable(
            path, f"it adds the {kind} {name}, and only names that start with CUSTOM_ may be added"
        )


def _unusable(path: Path, reason: str) -> ProviderConfigException:
    return ProviderConfigException(
        f"The provider config file {path} cannot be used: {reason}. Correct or remove the file."
    )
