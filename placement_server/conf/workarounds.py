"""Options of group `workarounds`: those of the published server for its own weaknesses."""

from oslo_config import cfg

GROUP = "workarounds"

OPTS = [
    cfg.BoolOpt(
        "optimize_for_wide_provider_trees",
        default=False,
        help="""
No effect; accepted so that an existing configuration stays valid. The
search always drops combinations that cannot fit.
""",
    ),
]
