"""The command `placement`: all that the Placement API and its extensions can do, by hand.

provider, tree, inventory, trait, class, aggregate, allocation, usage   what there is
candidates, claim, explain                                              where something fits
capacity, fragmentation, what-if                                        how much more fits
changes                                                                 what changed
export, apply, reshape                                                  files
completion                                                              for bash and zsh
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compute_agent import __version__
from compute_agent.cmd import program
from compute_agent.cmd.placement.arguments import Commands
from compute_agent.cmd.placement.commands import (
    allocations,
    candidates,
    completion,
    documents,
    history,
    names,
    providers,
)
from compute_agent.programs import configuration_files
from compute_agent.programs.exit_status import exit_table

if TYPE_CHECKING:
    from compute_agent.placement.transports.transport import Transport

PROGRAM = "placement"


def main(argv: Sequence[str] | None = None, transport: Transport | None = None) -> int:
    """Run the command given by `argv` and return its exit status.

    :param transport: the way to placement; by default the one that the options name.
    """
    files, others = configuration_files.split(PROGRAM, sys.argv[1:] if argv is None else argv)
    namespace = build_parser().parse_args([*files, *others])
    namespace.transport = transport
    return program.run(PROGRAM, namespace, reader_may_leave=True)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Command line of the Placement API and the extensions of placement-server.",
        epilog=exit_table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    where = parser.add_argument_group(
        "which placement to use; default: the cloud of the OS_* variables"
    )
    where.add_argument(
        "--os-cloud",
        metavar="NAME",
        default=os.environ.get("OS_CLOUD"),
        help="name of a cloud in clouds.yaml; default: OS_CLOUD",
    )
    where.add_argument("--url", metavar="URL", help="URL of placement")
    where.add_argument(
        "--token",
        metavar="TOKEN",
        help="token for --url; without a token, placement must use noauth2",
    )
    where.add_argument(
        "--config-file",
        metavar="FILE",
        help="placement.conf; use its database directly, without a running server",
    )
    commands = Commands(parser)
    for module in (
        *(providers, names, allocations),
        *(candidates, history, documents, completion),
    ):
        module.add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
