"""Options of group ``workarounds``: those of the published server for its own weaknesses."""

from oslo_config import cfg

GROUP = "workarounds"

OPTS = [
    cfg.BoolOpt(
        "optimize_for_wide_provider_trees",
        default=False,
        help="""
Accepted so that an existing configuration keeps working. The search prunes combinations that
cannot fit in any case, so the option has no effect here.
""",
    ),
]
