"""Options of group ``profiler``: traces of requests across services, by osprofiler.

The options are osprofiler's own. Where it is not installed only the switch is registered, so that
an operator who turns it on gets a warning of what is missing.
"""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

GROUP: Final = "profiler"

OPTS: Final = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="""
Trace requests that carry a trace signed with one of `hmac_keys`, across all
services that trace it.

Needs osprofiler (`pip install 'compute-agent[profiler]'`). Its
documentation describes the other options of this group: `connection_string`
(where traces are sent), `hmac_keys`, `trace_sqlalchemy`, `trace_requests`
and more. Without osprofiler the server logs a warning and traces nothing.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of osprofiler, or the switch alone where it is not installed."""
    # A group of this configuration alone: osprofiler's own group object would share its values
    # with every other configuration.
    conf.register_group(cfg.OptGroup(GROUP))
    try:
        from osprofiler import opts
    except ImportError:
        conf.register_opts(OPTS, group=GROUP)
    else:
        opts.set_defaults(conf)
