"""Options of group tracing, and the provider of spans that OpenTelemetry sends to a collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oslo_config import cfg

from compute_agent.programs.declared_options import options
from compute_agent.programs.extra_installation import install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

GROUP: Final = "tracing"

OPTS: Final = options(
    """
otlp_endpoint: text ()
    URL of a collector, to which a trace of every pass, call on the bus and request, with its SQL,
    is sent by OTLP over HTTP, for example `http://127.0.0.1:4318/v1/traces`. Empty: no traces.

    A request with the W3C header `traceparent` becomes part of the trace that the header names.
    Needs the extra `tracing`. Statements are sent without their values.

sample_ratio: float 0..1 (1)
    Share of the traces that begin here that is sent, from 0 to 1. A trace that began elsewhere is
    sent if the sender of the request sends it.
""",
    otlp_endpoint={"regex": r"^$|^https?://.+"},
)

_EXPORT_SECONDS: Final = 5
"""How long one try to send spans may take: as long the end of the program may have to wait."""


class OpenTelemetryMissing(Exception):
    """Traces that are configured and cannot be sent. The text says what to do."""


def new_provider(
    conf: cfg.ConfigOpts, service: str, host: str | None = None
) -> TracerProvider | None:
    """Return what sends spans as configured, `None` where none are to be sent.

    Nothing of OpenTelemetry is imported then.

    :param service: the name of this program in traces.
    :raises OpenTelemetryMissing: OpenTelemetry is not installed.
    """
    endpoint = conf.tracing.otlp_endpoint
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise OpenTelemetryMissing(
            f"[tracing]otlp_endpoint is set, but OpenTelemetry cannot be loaded ({error}). Install "
            f"it with: {install_command('tracing')}. Or leave the option empty."
        ) from error
    provider = TracerProvider(
        resource=Resource.create(
            {"service.name": service, **({} if host is None else {"host.name": host})}
        ),
        sampler=ParentBased(TraceIdRatioBased(conf.tracing.sample_ratio)),
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
