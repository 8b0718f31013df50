"""Options of group ``placement_server``: those that OpenStack Placement does not have."""

from oslo_config import cfg, types

GROUP = "placement_server"

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

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
        "inventory_metrics",
        default="classes",
        choices=[
            ("classes", "sums over the whole fleet, one series per class and amount"),
            ("hosts", "by host as well: four series per class of each host"),
        ],
        help="""
How fine the metrics of inventories are: capacity, reserved, used and free amounts. Each scrape
reads them from the database.

With `hosts`, 10,000 hosts of three classes are 120,000 series, which Prometheus must keep: choose
it for small fleets, or scrape seldom.
""",
    ),
    cfg.Opt(
        "zone_aggregates",
        type=types.Dict(value_type=types.String(regex=UUID, ignore_case=True)),
        default={},
        help="""
Show the metrics of inventories by zone as well: the name of each zone, as it is to be in the
metrics, and the aggregate with its hosts. For example
`az1:5e08ea53-c4c6-448e-9334-ac4953de3cfa,az2:42896e0d-205d-4fe3-bd1e-100924931787`.

A host is in a zone when its root provider is in the aggregate, and then all of its tree is.
Storage that hosts of several zones share is in each of which its provider is a member.
""",
    ),
    cfg.StrOpt(
        "healthcheck_path",
        default="",
        regex=r"^$|^/.+",
        help="""
Report to load balancers at this path, for example `/-/healthy`, whether the server is to get
requests; empty: nowhere. It is 503 where the database does not answer within two seconds, until the
index is loaded, and where one of the checks of `[healthcheck]` fails. No token is needed there.
""",
    ),
    cfg.StrOpt(
        "web_path",
        default="",
        regex=r"^$|^(/[A-Za-z0-9._~-]+)+$",
        help="""
Serve pages that show the fleet in a browser at this path, for example `/-/web`; empty: nowhere.

The pages themselves need no token and hold no data. All that they show they ask of the API, with
the token that the person who looks gives to the page, or with none where `[api]auth_strategy` is
`noauth2`. Choose one that is no path of the API.
""",
    ),
    cfg.StrOpt(
        "saved_index_path",
        default="",
        help="""
A directory in which the workers of this machine keep a copy of their index, for example
`/var/lib/placement`; empty: they keep none. A worker that starts reads the copy, and from the
database only what has changed since.

The copy is a file of some 250 bytes for each provider, which one worker writes again every five
minutes. It is private to the user that the server runs as. One that is damaged, is of another
database or version, or does not have the same sums as the database is not used; the log has the
reason then. It may be deleted at any time.
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
        "search_memory",
        default=128,
        min=1,
        help="""
How much memory, in MiB, one search for allocation candidates may hold with its answer. One that
needs more is given up and answered with 503.

Raise it where clients ask without a limit for requests with very many answers.
""",
    ),
    cfg.IntOpt(
        "worker_search_memory",
        default=256,
        min=8,
        help="""
How much memory, in MiB, all searches of one worker process may hold together, with the answers
that it is sending and the texts that it keeps for later ones, beyond what the worker has anyway. A
search that would need more is given up and answered with 503 and Retry-After.

Heavy searches may have five eighths of it (see `heavy_searches`), so keep it at twice
`search_memory`.
""",
    ),
    cfg.IntOpt(
        "heavy_searches",
        default=2,
        min=1,
        help="""
How many heavy searches for allocation candidates may run at a time in one worker process. Others
wait until their deadline, and are answered with 503 and Retry-After then. Light searches and other
requests never wait for them.
""",
    ),
    cfg.FloatOpt(
        "heavy_search_seconds",
        default=0.05,
        min=0.0,
        help="""
After how many seconds of processor time a search for allocation candidates is heavy. Ordinary
searches, with a limit of 1,000, need a fraction of the default. With 0 every search is heavy.
""",
    ),
    cfg.IntOpt(
        "max_watchers",
        default=200,
        min=1,
        help="""
How many requests `GET /changes` with `wait` may wait at a time in one worker process. Others are
answered with 503 and Retry-After.

Under `placement-server serve` they take none of the threads, but a connection each, of the 1,000
that a worker has. Under uWSGI, Apache and others each takes a thread: keep it below their number.
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
