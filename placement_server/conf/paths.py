"""Paths that other options are built on."""

from pathlib import Path

from oslo_config import cfg

OPTS = [
    cfg.StrOpt("tempdir", help="Directory for temporary files. The system's own when not set."),
    cfg.StrOpt(
        "pybasedir",
        default=str(Path(__file__).resolve().parents[2]),
        sample_default="<Path>",
        help="The directory in which the server's Python package is installed.",
    ),
    cfg.StrOpt(
        "state_path",
        default="$pybasedir",
        help="The top directory of what the server keeps between starts.",
    ),
    cfg.BoolOpt(
        "log_options",
        default=True,
        help="Log the value of every option, at the level debug, when the server starts.",
    ),
]
