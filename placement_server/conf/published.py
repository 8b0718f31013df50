"""Options of OpenStack Placement; `database` has those of the database."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from oslo_config import cfg

from compute_agent.programs.declared_options import options

_PATHS: Final = options(
    """
tempdir: text
    No effect; accepted so that an existing configuration stays valid.

pybasedir: text
    Directory in which the Python package of the server is installed.

state_path: text ($pybasedir)
    Value of $state_path in other options. The server itself stores nothing there.

log_options: bool (true)
    Log the values of all options at the level debug when the server starts. No effect with
    `placement-server serve`.
""",
    pybasedir={"default": str(Path(__file__).resolve().parents[2]), "sample_default": "<Path>"},
)

_API: Final = options(
    """
auth_strategy: text (keystone)
    How callers are authenticated.

    No token is needed for the version document at `/`, and for the paths that `[placement_server]`
    sets for metrics, health checks and pages.

    - keystone: Keystone validates every token; see [keystone_authtoken].
    - noauth2: The token is `user` or `user:project` and is not validated; the user `admin` may do
      everything. For tests, and for a server that only trusted clients can reach.
""",
    auth_strategy={"deprecated_group": "DEFAULT"},
)

_PLACEMENT: Final = options("""
randomize_allocation_candidates: bool (false)
    Return a random sample of the allocation candidates if the client sets a limit, and all
    candidates in random order if it does not.

    Enable it if many schedulers request few candidates at a time and often choose the same hosts.
    With a limit, hosts are visited in random order, and the search still ends at the limit.

incomplete_consumer_project_id: text (00000000-0000-0000-0000-000000000000)
    Project of consumers whose allocations were written without a project (microversions before
    1.8).

    Usages of such consumers are reported for this project.

incomplete_consumer_user_id: text (00000000-0000-0000-0000-000000000000)
    User of consumers whose allocations were written without a user (microversions before 1.8).

allocation_conflict_retry_count: int 0.. (10)
    Maximum number of tries of a write that conflicts with other writers of the same records. 0
    means one try.

    If all tries fail, the client gets a conflict (409). Raise it if clients get such conflicts
    although there is room; requests may then wait longer.

max_allocation_candidates: int -1.. (-1)
    Stop a search after this many allocation candidates; -1 means no limit.

    Set it to limit time and memory if requests have thousands of candidates and clients set no
    limit. With the strategy `depth-first` one host may use up the whole number, so combine it with
    `breadth-first`.

allocation_candidates_generation_strategy: text (depth-first)
    Order in which allocation candidates are found if `[placement]max_allocation_candidates` is set.
    It determines which candidates are found before the search stops.

    Without this maximum the option has no effect: a request with a limit gets one candidate of each
    host before a second candidate of any host.

    - depth-first: All candidates of a host before those of the next host.
    - breadth-first: One candidate of each host in turn.
""")

OPTS: Final[dict[str | None, list[cfg.Opt]]] = {
    None: _PATHS,
    "api": _API,
    "placement": _PLACEMENT,
    "workarounds": options("""
optimize_for_wide_provider_trees: bool (false)
    No effect; accepted so that an existing configuration stays valid. The search always drops
    combinations that cannot fit.
"""),
    "profiler": options("""
enabled: bool (false)
    No effect, like all others of this group; accepted so that an existing configuration stays
    valid. Group `tracing` has what traces requests.
"""),
}

WITHOUT_EFFECT: Final[tuple[tuple[str | None, str], ...]] = (
    (None, "tempdir"),
    ("profiler", "enabled"),
    ("workarounds", "optimize_for_wide_provider_trees"),
)
"""Group (`None` for the default group) and name of those that parse, so that an existing file stays
valid, and do nothing: the server names those that are set once at its start. `slave_connection` has
a warning of its own, because its effect is missed."""
