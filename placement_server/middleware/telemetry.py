"""Traces of requests and of their SQL, by OpenTelemetry.

Off unless `[tracing]otlp_endpoint` is set: nothing of OpenTelemetry is imported then, and no
request passes through here.
"""

from __future__ import annotations

from collections.abc import Iterable
from multiprocessing import util
from typing import TYPE_CHECKING, Any, Final

from oslo_config import cfg

from compute_agent.programs.tracing import OpenTelemetryMissing, new_provider
from placement_server import __version__
from placement_server.api.request import (
    REQUEST_ID_KEY,
    ROUTE_KEY,
    VERSION_KEY,
    global_request_id,
)
from placement_server.conf import InvalidConfiguration
from placement_server.store.store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import ExceptionContext

_SPAN: Final = "placement_server.span"

_providers: list[TracerProvider] = []


class Telemetry:
    """Make each request a span, the child of the one that its header names."""

    def __init__(self, application: WSGIApplication, tracer: Tracer) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._application = application
        self._tracer = tracer
        self._server = SpanKind.SERVER
        self._error = Status(StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        headers = {name: environ.get(f"HTTP_{name.upper()}") for name in _HEADERS}
        carrier = {name: value for name, value in headers.items() if value is not None}
        with self._tracer.start_as_current_span(
            method, self._propagator.extract(carrier), self._server
        ) as span:

            def start_traced(
                status: str, headers: list[tuple[str, str]], exc_info: Any = None
            ) -> Any:
                span.set_attribute("http.response.status_code", int(status[:3]))
                if status.startswith("5"):
                    span.set_status(self._error)
                return start_response(status, headers, exc_info)

            chunks = self._application(environ, start_traced)
            route = environ.get(ROUTE_KEY)
            if route is not None:
                span.update_name(f"{method} {route}")
            details = {
                "http.request.method": method,
                "http.route": route,
                "openstack.request_id": environ.get(REQUEST_ID_KEY),
                "openstack.global_request_id": global_request_id(environ),
                "openstack.api_version": environ.get(VERSION_KEY),
            }
            span.set_attributes(
                {name: str(value) for name, value in details.items() if value is not None}
            )
            return chunks


_HEADERS: Final = ("traceparent", "tracestate")


def wrap(application: WSGIApplication, conf: cfg.ConfigOpts, store: Store) -> WSGIApplication:
    """Trace the application if `[tracing]otlp_endpoint` is set.

    :raises InvalidConfiguration: OpenTelemetry is not installed.
    """
    try:
        provider = new_provider(conf, "placement-server")
    except OpenTelemetryMissing as error:
        raise InvalidConfiguration(str(error)) from error
    if provider is None:
        return application
    _providers.append(provider)
    # at the end of a worker of `placement-server serve`, a process of multiprocessing
    util.Finalize(None, send_all, exitpriority=0)
    tracer = provider.get_tracer("placement_server", __version__)
    for engine in store.all_engines():
        _trace_statements(engine, tracer)
    return Telemetry(application, tracer)


def send_all() -> None:
    """Send the spans that wait, before this process ends."""
    while _providers:
        _providers.pop().shutdown()


def _trace_statements(engine: Engine, tracer: Tracer) -> None:
    """Make each statement of a request a span."""
    from opentelemetry import trace
    from sqlalchemy import event

    system = {"postgresql": "postgresql", "sqlite": "sqlite"}.get(engine.dialect.name, "mysql")

    @event.listens_for(engine, "before_cursor_execute")
    def begin(
        connection: Connection, _cursor: Any, statement: str, *_parameters_context_many: Any
    ) -> None:
        if trace.get_current_span().is_recording():
            connection.info[_SPAN] = tracer.start_span(
                statement.split(None, 1)[0].upper(),
                kind=trace.SpanKind.CLIENT,
                attributes={"db.system.name": system, "db.query.text": statement},
            )

    @event.listens_for(engine, "after_cursor_execute")
    def end(connection: Connection, *_cursor_statement_parameters_context_many: Any) -> None:
        span = connection.info.pop(_SPAN, None)
        if span is not None:
            span.end()

    @event.listens_for(engine, "handle_error")
    def fail(context: ExceptionContext) -> None:
        if context.connection is None:
            return
        span = context.connection.info.pop(_SPAN, None)
        if span is not None:
            span.record_exception(context.original_exception)
            span.set_status(trace.Status(trace.StatusCode.ERROR))
            span.end()
