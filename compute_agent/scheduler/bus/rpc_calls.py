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
from compute_agent.scheduler.bus import versioned_objects
from compute_agent.scheduler.manager import Selection
from compute_agent.scheduler.outcomes.observer import Observer

# before the library is imported: it would settle on eventlet
message_bus.use_threads()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet warns that it is deprecated; it is not used
    import oslo_messaging

LOG = logging.getLogger(__name__)


def target_of(version: str) -> Any:
    """Return what the bus knows an endpoint by."""
    return oslo_messaging.Target(version=version)


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
            raise versioned_objects.versioned_error(error) if is_versioned else error
        except Exception:  # noqa: BLE001 - whatever was raised the line before
            raise oslo_messaging.ExpectedException() from error


def request_id_of(ctxt: Mapping[str, Any]) -> str:
    return str(ctxt.get("global_request_id") or ctxt.get("request_id") or "")


def spec_of(spec_obj: Any) -> RequestSpec:
    """Return the specification in an object or a dictionary.

    :raises InvalidRequest: a field cannot be used.
    """
    body = versioned_objects.plain(spec_obj)
    if not isinstance(body, Mapping):
        raise InvalidRequest("spec_obj", body, "an object with named fields")
    return spec_reader.read_spec(body)


def answer_of(selection: Selection, *, is_versioned: bool) -> dict[str, Any]:
    """Return a selection in the form of the question."""
    if is_versioned:
        return versioned_objects.versioned_selection(selection)
    return selection.as_dict()
