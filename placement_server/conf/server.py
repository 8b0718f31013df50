"""[placement_server]: what this server has and OpenStack's does not."""

from oslo_config import cfg

GROUP = "placement_server"

OPTS = [
    cfg.StrOpt(
        "metrics_path",
        default="",
        regex=r"^$|^/.+",
        help="""
Serve metrics for Prometheus at this path, for example `/-/metrics`; empty: nowhere.

No token is needed there, because scrapers have none, so keep the path from the outside in the
proxy. Choose one that is no path of the API.
""",
    ),
    cfg.StrOpt(
        "healthcheck_path",
        default="",
        regex=r"^$|^/.+",
        help="""
Tell load balancers at this path, for example `/-/healthy`, whether the server is to get requests;
empty: nowhere. What is checked is told in `[healthcheck]`. No token is needed there.
""",
    ),
    cfg.FloatOpt(
        "search_deadline",
        default=30.0,
        min=0.1,
        help="""
After how many seconds a search for allocation candidates is given up and answered with 503.

A search that takes longer than the client waits is work for nothing. Raise it only where clients
ask without a limit for requests with very many answers, and wait that long.
""",
    ),
    cfg.IntOpt(
        "max_body_size",
        default=8 * 1024 * 1024,
        min=1024,
        help="""
The most bytes that the body of a request may have. A longer one is answered with 400 and not read
into memory.

The largest bodies are those of reshapes: about 300 bytes for each inventory and each allocation.
""",
    ),
    cfg.FloatOpt(
        "client_timeout",
        default=60.0,
        min=0.1,
        help="""
How many seconds a client of `placement-server serve` has to send one request whole, and again to
take the answer. Then its connection is closed.

Under uWSGI, Apache and others this is theirs to say, and the option has no effect.
""",
    ),
]
