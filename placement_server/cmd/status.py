"""placement-status: the readiness of a deployment for the installed software.

    placement-status [--config-file F] [--config-dir D] upgrade check [--json]

Exit status: 0 all is well, 1 at least one warning, 2 at least one failure, 3 the database is
unavailable, 255 checks not run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from oslo_config import cfg

from compute_agent.programs import configuration_files, log_lines
from compute_agent.programs.arguments import arguments
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.module_loading import load
from compute_agent.programs.printable import show_orders
from placement_server import conf as configuration

PROGRAM: Final = "placement-status"
DESCRIPTION: Final = "Checks whether the database and the configuration suit this version."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    show_orders()
    files, command = configuration_files.split(
        PROGRAM, sys.argv[1:] if arguments is None else arguments
    )
    conf = new_conf()
    try:
        configuration.parse(conf, [*files, *command], prog=PROGRAM, description=DESCRIPTION)
        log_lines.set_up(conf, "placement", configuration.InvalidConfiguration)
        return int(load(conf.command.function)(conf))
    except configuration.InvalidConfiguration as error:
        print(f"placement-status: {error}", file=sys.stderr)
        return Exit.DEFECT


def new_conf() -> cfg.ConfigOpts:
    """Return the options and commands of the program, before anything is read."""
    return configuration.with_commands(_add_commands)


def _add_commands(subparsers: Any) -> None:
    upgrade = subparsers.add_parser(
        "upgrade", help="check whether the deployment is ready for this version"
    )
    upgrade.set_defaults(function="placement_server.cmd.upgrade_check:run")
    arguments(
        """
        check {check}  run all checks
        --json         print the results as JSON
        """
    )(upgrade)
