"""Options of group `profiler`: those of osprofiler, whose traces became those of `tracing`."""

from oslo_config import cfg

GROUP = "profiler"

OPTS = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="""
No effect, like all others of this group; accepted so that an existing
configuration stays valid. Group `tracing` has what traces requests.
""",
    ),
]
