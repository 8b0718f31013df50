"""Calls on the bus: requests and answers, plain or as versioned objects of Nova, and their errors.

A caller with Nova's serialiser sends each object as its name, version and fields, and expects the
answer in the same form. The names, versions and fields are those that nova 33 and 34 write for
`select_destinations`; fields that a version lacks are absent, and those that nobody reads stay.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from msgspec import to_builtins

from compute_agent.daemon import message_bus
from compute_agent.errors import AllocationUpdateFailed, ComputeAgentError, PlacementUnavailable
from compute_agent.request import spec_reader
from compute_agent.request.errors import InvalidRequest, shown_name
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.manager import Selection
from compute_agent.scheduler.outcomes import Observer

# before the library is imported: it would settle on eventlet
message_bus.use_threads()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet warns that it is deprecated; it is not used
    import oslo_messaging

LOG = logging.getLogger(__name__)

Context: TypeAlias = Mapping[str, Any]
_Data: TypeAlias = dict[str, Any]

_OBJECT: Final = "nova_object."
_NAME: Final = f"{_OBJECT}name"
_DATA: Final = f"{_OBJECT}data"
_PAGES: Final = {-1: "small", -2: "large", -3: "any"}
"""Wishes for a page size, which a cell of a guest has in the place of KiB."""
_SELECTION_VERSION: Final = "1.1"
_LIMITS_VERSION: Final = "1.0"
_CLAIM_VERSION: Final = "1.36"
"""Microversion at which a conductor claims alternates: its body has no consumer type."""


def is_versioned(value: Any) -> bool:
    """Return whether a value is a versioned object."""
    return isinstance(value, Mapping) and _DATA in value


def plain(value: Any) -> Any:
    """Return plain values for versioned objects, at every depth.

    :raises InvalidRequest: the data of one is not an object, or it is nested too deeply.
    """
    try:
        return _plain(value)
    except RecursionError as error:
        raise InvalidRequest("spec_obj", "...", "an object that is not nested so deeply") from error


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if _DATA not in value:
        return {key: _plain(item) for key, item in value.items()}
    if not isinstance(value[_DATA], Mapping):
        raise InvalidRequest(_DATA, value[_DATA], "an object with named fields")
    fields = {key: _plain(item) for key, item in value[_DATA].items()}
    name = str(value.get(_NAME, ""))
    if name.endswith("List") and "objects" in fields:
        return fields["objects"]
    translate = _TRANSLATIONS.get(name)
    return fields if translate is None else translate(fields)


def _guest_cell(fields: _Data) -> _Data:
    size = fields.get("pagesize")
    return {**fields, "pagesize": _PAGES.get(size, size) if isinstance(size, int) else size}


def _image_properties(fields: _Data) -> dict[str, str]:
    """Return properties as an image service has them: texts, one for each NUMA node."""
    properties: dict[str, str] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name in ("hw_numa_cpus", "hw_numa_mem"):
            for node, share in enumerate(value):
                properties[f"{name}.{node}"] = _text(share)
        else:
            properties[name] = _text(value)
    return properties


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value)


_TRANSLATIONS: Final[Mapping[str, Callable[[_Data], Any]]] = {
    "ComputeNode": lambda fields: [fields.get("host"), fields.get("hypervisor_hostname")],
    "ImageMetaProps": _image_properties,
    "InstanceGroup": lambda fields: {**fields, "rules": fields.get("_rules")},
    "InstanceNUMACell": _guest_cell,
    "InstancePCIRequests": lambda fields: fields.get("requests"),
}


def answer_of(selection: Selection, *, is_versioned: bool) -> _Data:
    """Return a selection in the form of the question."""
    fields: _Data = to_builtins(selection)
    if not is_versioned:
        return fields
    fields["allocation_request_version"] = _CLAIM_VERSION
    limits = dict.fromkeys(("numa_topology", "vcpu", "disk_gb", "memory_mb"))
    fields["limits"] = _object("SchedulerLimits", _LIMITS_VERSION, limits | selection.limits)
    return _object("Selection", _SELECTION_VERSION, fields)


def _object(name: str, version: str, fields: Mapping[str, Any]) -> _Data:
    return {
        _NAME: name,
        f"{_OBJECT}namespace": "nova",
        f"{_OBJECT}version": version,
        _DATA: dict(fields),
    }


class _Error(Exception):
    """An error by the name that it has for callers from Nova, which read no other module."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.kwargs: dict[str, Any] = {}


def _named(name: str) -> type[_Error]:
    return type(name, (_Error,), {"__module__": "nova.exception"})


_NAMED_ERRORS: Final = (
    # a request that no host could ever take is not sent again either
    ((NoValidHost, InvalidRequest, MoveRefused), _named("NoValidHost")),
    ((PlacementUnavailable,), _named("PlacementAPIConnectFailure")),
    ((AllocationUpdateFailed,), _named("AllocationUpdateFailed")),
)


def versioned_error(error: Exception) -> Exception:
    """Return an error as one that a conductor expects: of `nova.exception`, with its text."""
    named = (kind(str(error)) for kinds, kind in _NAMED_ERRORS if isinstance(error, kinds))
    return next(named, error)


@contextmanager
def answering(
    observer: Observer,
    method: str,
    relation: str = "",
    subject: object = "",
    *,
    is_versioned: bool = False,
) -> Iterator[None]:
    """Return errors to the caller as they are; otherwise the bus would log them as defects.

    :param relation: to the subject, which may be whatever the caller sent: "for", "of".
    :param is_versioned: the caller sent versioned objects, and knows errors by Nova's names.
    """
    try:
        with observer.answering(method):
            yield
    except ComputeAgentError as error:
        LOG.info("%s: %s", f"{method} {relation} {shown_name(subject)}".rstrip(), error)
        try:
            # the bus sends the error that is being handled
            raise versioned_error(error) if is_versioned else error
        except Exception:  # noqa: BLE001 - whatever was raised the line before
            raise oslo_messaging.ExpectedException() from error


def spec_of(spec_obj: Any) -> RequestSpec:
    """Return the specification in an object or a dictionary.

    :raises InvalidRequest: a field cannot be used.
    """
    body = plain(spec_obj)
    if not isinstance(body, Mapping):
        raise InvalidRequest("spec_obj", body, "an object with named fields")
    return spec_reader.read_spec(body)
