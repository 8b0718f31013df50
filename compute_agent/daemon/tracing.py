"""Spans of a program's work, which OpenTelemetry sends to a collector.

Off unless `[tracing]otlp_endpoint` is set: nothing of OpenTelemetry is imported then, and a span
is a context that does nothing. A trace goes on from one program to the next in the header
`traceparent` of HTTP and the key of that name in the context of a call on the bus, where
oslo.messaging puts it too, as W3C defines it, beside the request ids of OpenStack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from compute_agent import __version__, errors
from compute_agent.programs.tracing import OpenTelemetryMissing, new_provider

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from oslo_config import cfg

_OFF: Final = nullcontext()
_tracer: Tracer | None = None


def start(conf: cfg.ConfigOpts, service: str) -> None:
    """Send spans from now on, where that is configured.

    :param service: the name of this program in traces.
    :raises InvalidConfiguration: OpenTelemetry is not installed.
    """
    global _tracer
    try:
        provider = new_provider(conf, service, conf.DEFAULT.host)
    except OpenTelemetryMissing as error:
        raise errors.InvalidConfiguration(str(error)) from error
    if provider is not None:
        _tracer = provider.get_tracer("compute_agent", __version__)


def is_on() -> bool:
    """Return whether spans are sent."""
    return _tracer is not None


def span(
    name: str,
    kind: str = "INTERNAL",
    carrier: Mapping[str, Any] | None = None,
    **attributes: str | int,
) -> AbstractContextManager[Any]:
    """Return what surrounds a piece of work; an error of it is recorded and passes through.

    :param kind: the name of a kind of OpenTelemetry: `INTERNAL`, `CLIENT` or `SERVER`.
    :param carrier: of the trace that this goes on with; by default that of the span around it.
    :param attributes: by name, with `__` for a dot.
    """
    if _tracer is None:
        return _OFF
    return _span(_tracer, name, kind, carrier, attributes)


@contextmanager
def _span(
    tracer: Tracer,
    name: str,
    kind: str,
    carrier: Mapping[str, Any] | None,
    attributes: Mapping[str, str | int],
) -> Iterator[Any]:
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = None
    if carrier is not None:
        texts = {key: value for key, value in carrier.items() if isinstance(value, str)}
        context = TraceContextTextMapPropagator().extract(texts)
    named_attributes = {name.replace("__", "."): value for name, value in attributes.items()}
    with tracer.start_as_current_span(name, context, SpanKind[kind], named_attributes) as span:
        yield span


def context_to_send() -> dict[str, str]:
    """Return what makes the receiver of a request go on with this trace; empty when off."""
    carrier: dict[str, str] = {}
    if _tracer is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier


def traced_endpoint(endpoint: Any) -> Any:
    """Return an endpoint of the message bus, each call of which is a span where spans are sent."""
    return endpoint if _tracer is None else _TracedEndpoint(endpoint)


class _TracedEndpoint:
    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._endpoint, name)
        # the target of an endpoint can be called, too, to make another one
        if name == "target" or not callable(attribute):
            return attribute

        def call(ctxt: Mapping[str, Any], **arguments: Any) -> Any:
            request_id = ctxt.get("global_request_id") or ctxt.get("request_id") or ""
            with span(name, "SERVER", ctxt, rpc__method=name, openstack__request_id=request_id):
                return attribute(ctxt, **arguments)

        return call
