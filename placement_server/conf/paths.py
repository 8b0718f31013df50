"""Paths that other options are built on."""

from pathlib import Path

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "tempdir",
        help="No effect; accepted so that an existing configuration stays valid.",
    ),
    cfg.StrOpt(
        "pybasedir",
        default=str(Path(__file__).resolve().parents[2]),
        sample_default="<Path>",
        help="Directory in which the Python package of the server is installed.",
    ),
    cfg.StrOpt(
        "state_path",
        default="$pybasedir",
        help="Value of $state_path in other options. The server itself stores nothing there.",
    ),
    cfg.BoolOpt(
        "log_options",
        default=True,
        help=(
            "Log the values of all options at the level debug when the server starts. No effect "
            "with `placement-server serve`."
        ),
    ),
]
