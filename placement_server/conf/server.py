"""Options of group `placement_server`: those that OpenStack Placement does not have."""

from oslo_config import types

from compute_agent.programs.declared_options import options

GROUP = "placement_server"

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

_PATH = r"^$|^/.+"

OPTS = options(
    """
metrics_path: text ()
    Path of the metrics for Prometheus, for example `/-/metrics`. Empty: no metrics.

    The path needs no token, because scrapers have none: block it for outside clients in the proxy.
    Choose a path that the API does not use.

inventory_metrics: text (classes)
    Detail of the metrics of inventories: capacity, reserved, used and free amounts. Each scrape
    reads them from the database.

    With `hosts`, 10,000 hosts of three classes have 120,000 series, which Prometheus must store.
    Use it for small fleets, or scrape seldom.

    - classes: sums over the whole fleet: four series for each class
    - hosts: also by host: four series for each class of each host

zone_aggregates: value
    Zones for which metrics of inventories are also shown: the name of each zone in the metrics, and
    the aggregate with its hosts. For example
    `az1:5e08ea53-c4c6-448e-9334-ac4953de3cfa,az2:42896e0d-205d-4fe3-bd1e-100924931787`.

    A host with its whole tree is in a zone if its root provider is in the aggregate. Storage that
    hosts of several zones share is in each zone in whose aggregate its provider is.

healthcheck_path: text ()
    Path on which the server reports to load balancers whether it can serve requests, for example
    `/-/healthy`. Empty: no such path. The answer is 503 if the database does not answer within two
    seconds, until the index is loaded, and if a check of `[healthcheck]` fails. The path needs no
    token.

web_path: text ()
    Path of pages that show the fleet in a browser, for example `/-/web`. Empty: no pages.

    The pages need no token and contain no data. They request all data from the API, with the rights
    of the user, who logs in with the name and the password of Keystone unless `[api]auth_strategy`
    is `noauth2`. Choose a path that the API does not use.

cloud_name: text ()
    Name of the cloud, which the pages show in their header and in the titles of the browser, so
    that several clouds are not confused. Empty: none.

saved_index_path: text ()
    Directory in which the workers of this machine save a copy of their index, for example
    `/var/lib/placement`. Empty: no copy. A worker that starts reads the copy, and reads from the
    database only what has changed since.

    The copy is a file of about 250 bytes for each provider, which one worker writes every five
    minutes if something has changed. Only the user of the server can read it. The server does not
    use a copy that is damaged, belongs to another database or version, or does not match the sums
    of the database; the log then has the reason. The copy may be deleted at any time.

search_deadline: float 0.1.. (30)
    Seconds after which a search for allocation candidates is ended and answered with 503.

    An answer that is later than the client waits is useless. Raise it only if clients without a
    limit request very many candidates and wait that long.

search_memory: int 1.. (128)
    Maximum memory in MiB for one search for allocation candidates and its answer. A search that
    needs more is ended and answered with 503.

    Raise it if clients without a limit request very many candidates.

worker_search_memory: int 8.. (256)
    Maximum memory in MiB for all searches of one worker process together, in addition to the memory
    that the worker always uses. It includes the answers that are being sent, and texts that are
    kept for later answers. A search that would need more is ended and answered with 503 and
    Retry-After.

    Heavy searches may use five eighths of it (see `heavy_searches`), so set it to at least twice
    `search_memory`.

heavy_searches: int 1.. (2)
    Maximum number of heavy searches for allocation candidates (see `heavy_search_seconds`) that run
    at the same time in one worker process. Others wait until their deadline and are then answered
    with 503 and Retry-After. Light searches and other requests never wait for heavy searches.

heavy_search_seconds: float 0.. (0.05)
    Seconds of processor time after which a search for allocation candidates is heavy. Ordinary
    searches with a limit of 1,000 need a fraction of the default. 0: every search is heavy.

max_watchers: int 1.. (200)
    Maximum number of requests `GET /changes` with `wait` that wait at the same time in one worker
    process. More requests are answered with 503 and Retry-After.

    With `placement-server serve` each of them uses one of the 1,000 threads of a worker, and no
    turn at the application. With uWSGI, Apache and others each uses a thread: set it below the
    number of threads.

history_days: int 0.. (7)
    Days for which the database keeps what writes changed, of which consumer and provider, and who
    made them (`GET /history`). 0: it keeps nothing.

    A claim adds a row of about 400 bytes and so does its end: with 100,000 claims a day, seven days
    take half a gigabyte.

max_body_size: int 1024.. (8388608)
    Maximum size in bytes of the body of a request. A larger body is answered with 400 and not read
    into memory.

    The largest bodies are those of reshapes: about 300 bytes for each inventory and each
    allocation.

client_timeout: float 0.1.. (60)
    Seconds in which a client of `placement-server serve` must send the head of a request, and for
    which an idle connection is kept. After that the server closes the connection.

    With uWSGI, Apache and others this option has no effect; use their own timeouts.
""",
    metrics_path={"regex": _PATH},
    healthcheck_path={"regex": _PATH},
    web_path={"regex": r"^$|^(/[A-Za-z0-9._~-]+)+$"},
    zone_aggregates={
        "type": types.Dict(value_type=types.String(regex=UUID, ignore_case=True)),
        "default": {},
    },
)
