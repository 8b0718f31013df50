"""Calls on the message bus: their arguments as values, and errors that go back to the caller."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compute_agent.daemon import message_bus
from compute_agent.errors import ComputeAgentError
from compute_agent.request import spec_reader
from compute_agent.request.errors import InvalidRequest, shown_name
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.observer import Observer
from compute_agent.scheduler.selection import Selection

# before the library is imported: it would settle on eventlet
message_bus.use_threads()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet warns that it is deprecated; it is not used
    import oslo_messaging

LOG = logging.getLogger(__name__)

OBJECT = "nova_object."


def target_of(version: str) -> Any:
    """Return what the bus knows an endpoint by."""
    return oslo_messaging.Target(version=version)


@contextmanager
def answering(
    observer: Observer, method: str, relation: str = "", subject: object = ""
) -> Iterator[None]:
    """Return errors to the caller as they are; otherwise the bus would log them as defects.

    :param relation: to the subject, which may be whatever the caller sent: "for", "of".
    """
    try:
        with observer.answering(method):
            yield
    except ComputeAgentError as error:
        LOG.info("%s: %s", f"{method} {relation} {shown_name(subject)}".rstrip(), error)
        raise oslo_messaging.ExpectedException() from error


def request_id_of(ctxt: Mapping[str, Any]) -> str:
    return str(ctxt.get("global_request_id") or ctxt.get("request_id") or "")


def is_wrapped(spec_obj: Any) -> bool:
    return isinstance(spec_obj, Mapping) and f"{OBJECT}data" in spec_obj


def spec_of(spec_obj: Any) -> RequestSpec:
    body = unwrap(spec_obj)
    if not isinstance(body, Mapping):
        raise InvalidRequest("spec_obj", body, "an object with named fields")
    return spec_reader.read_spec(body)


def unwrap(value: Any) -> Any:
    """Return plain values for versioned objects, at every depth.

    :raises InvalidRequest: the data of one is not an object, or it is nested too deeply.
    """
    try:
        return _plain(value)
    except RecursionError as error:
        raise InvalidRequest("spec_obj", "...", "an object that is not nested so deeply") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = value.get(f"{OBJECT}data", value)
        if not isinstance(inner, Mapping):
            raise InvalidRequest(f"{OBJECT}data", inner, "an object with named fields")
        return {key: _plain(item) for key, item in inner.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def answer_of(selection: Selection, *, has_wrapped_spec: bool) -> dict[str, Any]:
    """Return a selection as plain values, or as a versioned object where the question was one."""
    plain = selection.as_dict()
    if not has_wrapped_spec:
        return plain
    return {
        f"{OBJECT}name": "Selection",
        f"{OBJECT}namespace": "nova",
        f"{OBJECT}version": "1.1",
        f"{OBJECT}data": plain,
    }
