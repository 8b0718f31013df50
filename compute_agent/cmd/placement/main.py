"""The command `placement`: all that the Placement API and its extensions can do, by hand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from compute_agent import __version__
from compute_agent.cmd import program
from compute_agent.cmd.placement.commands import (
    allocations,
    candidates,
    documents,
    history,
    names,
    providers,
)
from compute_agent.cmd.placement.parser import Commands
from compute_agent.programs import configuration_files
from compute_agent.programs.arguments import arguments
from compute_agent.programs.exit_status import exit_table

if TYPE_CHECKING:
    from compute_agent.placement.transports.transport import Transport

PROGRAM = "placement"
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def main(argv: Sequence[str] | None = None, transport: Transport | None = None) -> int:
    """Run the command given by `argv` and return its exit status.

    :param transport: the way to placement; by default the one that the options name.
    """
    files, others = configuration_files.split(PROGRAM, sys.argv[1:] if argv is None else argv)
    given = argparse.Namespace(transport=transport)
    return program.run(
        PROGRAM,
        lambda: build_parser().parse_args([*files, *others], given),
        reader_may_leave=True,
    )


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
    arguments(
        """
        --os-cloud NAME                      name of a cloud in clouds.yaml; default: OS_CLOUD
        --url URL                            URL of placement
        --token TOKEN                        token for --url; without a token, placement must use
                                             noauth2
        --config-file:placement_config FILE  placement.conf; use its database directly, without a
                                             running server
        """
    )(where)
    parser.set_defaults(os_cloud=os.environ.get("OS_CLOUD"))
    commands = Commands(parser)
    for module in (providers, names, allocations, candidates, history, documents):
        module.add_commands(commands)
    group = commands.group("completion", "scripts for the completion of all programs by a shell")
    for shell, preamble in (("bash", ""), ("zsh", _ZSH)):
        help_ = f"print it for {shell}: source <(placement completion {shell})"
        group.add_local(shell, partial(_print_completion, preamble), help_)
    return parser


def _print_completion(preamble: str, _namespace: argparse.Namespace) -> None:
    from importlib import resources

    script = resources.files("compute_agent.cmd.placement").joinpath("completion.bash").read_text()
    print(preamble + script, end="")


if __name__ == "__main__":
    sys.exit(main())
