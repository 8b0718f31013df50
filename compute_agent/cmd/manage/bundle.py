"""The command `bundle`: all that helps to find a fault of this machine, in one archive."""

from __future__ import annotations

import argparse
import json
import os
import socket
import tarfile
import time
from pathlib import Path
from typing import Final

from compute_agent import errors
from compute_agent.cmd.manage.options import ManageParser, add_common
from compute_agent.programs.exit_status import Exit

_DIRECTORIES: Final = tuple(
    Path("/etc", name) for name in ("compute-agent", "compute-scheduler", "placement")
)


def add_command(topics: argparse._SubParsersAction[ManageParser]) -> None:
    """Add the command to the parser."""
    parser = topics.add_parser(
        "bundle",
        help="collect what helps to find a fault of this machine in one archive",
        description="Write the configuration of all programs of this machine without its secrets,\n"
        "their versions, status and logs of the last two days, what `compute-agent doctor` says,\n"
        "and a capture of the machine, into one archive. Run it as root.",
    )
    add_common(parser, _bundle)
    parser.set_defaults(command="")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="archive to write; default: compute-agent-HOST-TIME.tar.gz in this directory",
    )


def _bundle(namespace: argparse.Namespace) -> int:
    from compute_agent.manage import bundle

    name = f"compute-agent-{socket.gethostname()}-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    path = Path(namespace.file or name)
    options = [f"--config-file={file}" for file in namespace.config_file]
    options += [f"--config-dir={directory}" for directory in namespace.config_dir]
    directories = (*_DIRECTORIES, *map(Path, namespace.config_dir))
    if namespace.dry_run:
        print(f"Would write {path}.")
        return Exit.WOULD_CHANGE
    try:
        # of this user alone: logs name instances, projects and addresses
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with (
                os.fdopen(descriptor, "wb") as file,
                tarfile.open(fileobj=file, mode="w:gz") as archive,
            ):
                bundle.fill(archive, directories, options, map(Path, namespace.config_file))
        except BaseException:
            path.unlink()
            raise
    except OSError as error:
        raise errors.InvalidConfiguration(
            f"The archive {path} cannot be written: {error.strerror}. Name a file that does not "
            "exist, on a disk with space."
        ) from error
    if namespace.json:
        print(json.dumps({"file": str(path)}))
    else:
        print(f"{path} has what is known of this machine. Passwords, tokens and keys are left out;")
        print("names, addresses and serial numbers are in it: look through it before you send it.")
    return Exit.FINE
