"""Paths that other options are built on."""

from pathlib import Path

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "tempdir",
        help="Accepted so that an existing configuration keeps working; nothing is put there.",
    ),
    cfg.StrOpt(
        "pybasedir",
        default=str(Path(__file__).resolve().parents[2]),
        sample_default="<Path>",
        help="The directory in which the server's Python package is installed.",
    ),
    cfg.StrOpt(
        "state_path",
        default="$pybasedir",
        help="For $state_path in other options. The server keeps nothing there by itself.",
    ),
    cfg.BoolOpt(
        "log_options",
        default=True,
        help="Log the value of every option, at the level debug, when the server starts.",
    ),
]
