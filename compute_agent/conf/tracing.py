"""Options of group tracing: where spans are sent."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "tracing"


def opts() -> list[cfg.Opt]:
    """Return every option of group tracing."""
    return [
        cfg.StrOpt(
            "otlp_endpoint",
            default="",
            regex=r"^$|^https?://.+",
            help="""
URL of a collector, to which a trace of every pass, call on the bus and request is sent by OTLP
over HTTP, for example http://127.0.0.1:4318/v1/traces. Empty: no traces. Needs OpenTelemetry:
pip install 'compute-agent[tracing]'.
""",
        ),
        cfg.FloatOpt(
            "sample_ratio",
            default=1.0,
            min=0.0,
            max=1.0,
            help="""
Share of the traces that begin here that is sent, from 0 to 1. A trace that began elsewhere is
sent if the sender of the request sends it.
""",
        ),
    ]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group tracing on `conf`."""
    conf.register_group(cfg.OptGroup(GROUP, title="Traces by OpenTelemetry"))
    conf.register_opts(opts(), group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, opts())]
