"""Options of group ``placement``: the search for candidates and the writing of claims."""

from oslo_config import cfg

GROUP = "placement"

_INCOMPLETE = "00000000-0000-0000-0000-000000000000"

OPTS = [
    cfg.BoolOpt(
        "randomize_allocation_candidates",
        default=False,
        help="""
Answer with a random sample of the allocation candidates where the client asks for a limit, and
in random order where it does not.

Turn it on when many schedulers ask for few candidates at a time and keep choosing the same hosts.
Under a limit hosts are then visited in random order, so the search still ends at the limit.
""",
    ),
    cfg.StrOpt(
        "incomplete_consumer_project_id",
        default=_INCOMPLETE,
        help="""
The project of allocations whose writer names none (microversions before 1.8).

Usages of such consumers are reported for this project.
""",
    ),
    cfg.StrOpt(
        "incomplete_consumer_user_id",
        default=_INCOMPLETE,
        help="""
The user of allocations whose writer names none (microversions before 1.8).
""",
    ),
    cfg.IntOpt(
        "allocation_conflict_retry_count",
        default=10,
        min=0,
        help="""
How often a write is tried, in all, when other writers of the same records get in its way.

A client is told of a conflict (409) when all tries have failed; 0 means one try. Raise it when
clients see such conflicts although there is room, at the price of requests that wait longer.
""",
    ),
    cfg.IntOpt(
        "max_allocation_candidates",
        default=-1,
        min=-1,
        help="""
Stop the search after this many allocation candidates; -1 means no limit.

Set it to bound time and memory where requests have thousands of answers and clients set no limit.
With the strategy `depth-first` one host may use all of it, so combine it with `breadth-first`.
""",
    ),
    cfg.StrOpt(
        "allocation_candidates_generation_strategy",
        default="depth-first",
        choices=[
            ("depth-first", "All candidates of one host before those of the next."),
            ("breadth-first", "One candidate of each host in turn."),
        ],
        help="""
The order in which allocation candidates are found under `[placement]max_allocation_candidates`.

It says which of them are among the first so many. Without a maximum it changes nothing: a request
with a limit then gets one candidate of each host before a second one of any.
""",
    ),
]
