"""The options of every program for its configuration files."""

from __future__ import annotations

import argparse


def add_configuration_files(
    options: argparse._ActionsContainer, *, what: str = "configuration file"
) -> None:
    """Add ``--config-file`` and ``--config-dir`` to a parser or a group of its options."""
    options.add_argument(
        "--config-file",
        action="append",
        default=[],
        metavar="FILE",
        help=f"{what}; may be given several times; default: /etc/compute-agent/compute-agent.conf",
    )
    options.add_argument(
        "--config-dir", action="append", default=[], metavar="DIR", help="directory of *.conf files"
    )
