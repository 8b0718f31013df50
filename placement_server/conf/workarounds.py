"""[workarounds]: options that the published server has for its own weaknesses."""

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
