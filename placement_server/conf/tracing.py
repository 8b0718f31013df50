"""Options of group ``tracing``: traces of requests, by OpenTelemetry."""

from oslo_config import cfg

GROUP = "tracing"

OPTS = [
    cfg.StrOpt(
        "otlp_endpoint",
        default="",
        regex=r"^$|^https?://.+",
        help="""
URL of a collector, to which a trace of every request, with its SQL, is sent
by OTLP over HTTP, for example `http://127.0.0.1:4318/v1/traces`. Empty: no
traces.

A request with the W3C header `traceparent` becomes part of the trace that
the header names. Needs OpenTelemetry:
`pip install 'compute-agent[tracing]'`. Statements are sent without their
values.
""",
    ),
    cfg.FloatOpt(
        "sample_ratio",
        default=1.0,
        min=0.0,
        max=1.0,
        help="""
Share of the traces that begin here that is sent, from 0 to 1. A trace that
began elsewhere is sent if the sender of the request sends it.
""",
    ),
]
