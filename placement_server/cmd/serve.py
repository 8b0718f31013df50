"""placement-server: the API of placement, served by an embedded HTTP server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from compute_agent.programs import configuration_files
from compute_agent.programs.arguments import arguments
from compute_agent.programs.module_loading import load
from placement_server import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    files, others = configuration_files.split(
        "placement-server", sys.argv[1:] if argv is None else argv
    )
    arguments = _parser().parse_args([*others, *files])
    return int(load(arguments.function)(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="placement-server", description="Serves the Placement API."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="serve the API until SIGTERM or SIGINT")
    configuration_files.options("/etc/placement/placement.conf")(serve)
    arguments(
        """
        --host ADDRESS (127.0.0.1)          address to listen on
        --port PORT (8778)                  TCP port to listen on; 0: any free port
        --workers N                         number of worker processes; default: number of CPUs, at
                                            most 8
        --threads N (8)                     requests that each worker processes at a time
        --tls-cert FILE                     serve HTTPS with this certificate
        --tls-key FILE                      private key of the certificate
        --database-url URL                  SQLAlchemy URL, instead of
                                            [placement_database]connection
        --sync-database                     upgrade the schema first, as with
                                            [placement_database]sync_on_startup
        --auth-strategy {keystone,noauth2}  instead of [api]auth_strategy; noauth2 trusts every
                                            caller
        """
    )(serve)
    serve.set_defaults(
        function="placement_server.cmd.serving:run", workers=min(os.cpu_count() or 1, 8)
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
