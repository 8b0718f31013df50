"""Reader of one provider config file: YAML, its version, its schema, its names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

from compute_agent.provider_config.additions import (
    EVERY_COMPUTE_NODE,
    ProviderConfig,
    ProviderConfigException,
    canonical_uuid,
    completed,
)

LOG = logging.getLogger(__name__)

_NAME: Final = "^[A-Z0-9_]{1,255}$"
_MAX: Final = 2147483647
_UUID: Final = "[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}"

_RECORD: Final = {
    "type": "object",
    "properties": {
        "total": {"type": "integer", "minimum": 1, "maximum": _MAX},
        "reserved": {"type": "integer", "minimum": 0, "maximum": _MAX},
        "min_unit": {"type": "integer", "minimum": 1, "maximum": _MAX},
        "max_unit": {"type": "integer", "minimum": 1, "maximum": _MAX},
        "step_size": {"type": "integer", "minimum": 1, "maximum": _MAX},
        "allocation_ratio": {"type": "number", "minimum": 0},
    },
    "required": ["total"],
    "additionalProperties": False,
}

SCHEMA: Final = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["meta"],
    "properties": {
        "__source_file": False,
        "meta": {
            "type": "object",
            "required": ["schema_version"],
            "properties": {
                "schema_version": {"type": "string", "pattern": r"^1\.([0-9]|[1-9][0-9]+)$"}
            },
        },
        "providers": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["identification"],
                "properties": {
                    "__source_file": False,
                    "identification": {
                        "type": "object",
                        "properties": {
                            "uuid": {
                                "type": "string",
                                "pattern": rf"^(\$COMPUTE_NODE|{_UUID})$",
                            },
                            "name": {"type": "string", "minLength": 1, "maxLength": 200},
                        },
                        "minProperties": 1,
                        "maxProperties": 1,
                        "additionalProperties": False,
                    },
                    "inventories": {
                        "type": "object",
                        "properties": {
                            "__source_file": False,
                            "additional": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "patternProperties": {_NAME: _RECORD},
                                    "additionalProperties": False,
                                },
                            },
                        },
                    },
                    "traits": {
                        "type": "object",
                        "properties": {
                            "__source_file": False,
                            "additional": {
                                "type": "array",
                                "items": {"type": "string", "pattern": _NAME},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""Unknown keys are allowed where a later version may bring new ones, and nowhere else."""

_VALIDATOR: Final = jsonschema.Draft7Validator(SCHEMA)
_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)")


def read(path: Path) -> list[ProviderConfig]:
    """Read one file.

    :raises ProviderConfigException: it cannot be used; names the file, the place and the reason.
    """
    document = _parse(path)
    _check_version(path, document)
    error = jsonschema.exceptions.best_match(_VALIDATOR.iter_errors(document))
    if error is not None:
        where = "/".join(str(part) for part in error.absolute_path) or "the top level"
        raise _unusable(path, f"{_reason(error)}, at {where}")
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
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise _unusable(path, f"it cannot be read ({error.strerror})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _unusable(path, f"it is not YAML{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise _unusable(path, f"it is not YAML: {error}") from error
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
    uuid = identification.get("uuid")
    inventories: dict[str, Any] = {}
    for resource_class, record in _records(entry):
        _check_custom(path, resource_class, "resource class")
        if resource_class in inventories:
            raise _unusable(path, f"it adds {resource_class} twice to one provider")
        inventories[resource_class] = completed(record)
    traits = entry.get("traits", {}).get("additional", ())
    for trait in traits:
        _check_custom(path, trait, "trait")
    return ProviderConfig(
        str(path),
        uuid=uuid if uuid in (None, EVERY_COMPUTE_NODE) else canonical_uuid(uuid),
        name=identification.get("name"),
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


def _reason(error: jsonschema.ValidationError) -> str:
    if error.schema is False:
        return "the key __source_file is reserved"
    return error.message


def _unusable(path: Path, reason: str) -> ProviderConfigException:
    return ProviderConfigException(
        f"The provider config file {path} cannot be used: {reason}. Correct or remove the file."
    )
