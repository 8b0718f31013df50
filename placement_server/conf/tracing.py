"""Options of group ``tracing``: traces of requests, by OpenTelemetry."""

from oslo_config import cfg

GROUP = "tracing"

OPTS = [
    cfg.StrOpt(
        "otlp_endpoint",
        default="",
        regex=r"^$|^https?://.+",
        help="""
Send a trace of every request, with its SQL, to this URL of a collector, by OTLP over HTTP, such as
`http://127.0.0.1:4318/v1/traces`; empty: nowhere.

A request with the header `traceparent` of W3C is part of the trace that this names. Needs
OpenTelemetry: `pip install 'compute-agent[tracing]'`. Statements are sent without their values.
""",
    ),
    cfg.FloatOpt(
        "sample_ratio",
        default=1.0,
        min=0.0,
        max=1.0,
        help="""
Share of the traces beginning here that are sent. Those that began elsewhere are sent if the sender
of the request sends them.
""",
    ),
]
