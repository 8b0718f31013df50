"""The command line of the nemesis."""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys
from pathlib import Path

from tests.fixtures import clocks
from tests.fixtures.galera import galera_missing
from tests.integration.bank import bank, private_database
from tests.integration.nemesis.answers import ANSWERS
from tests.integration.nemesis.galera import CLUSTERS, Cluster
from tests.integration.nemesis.kills import KILLS
from tests.integration.nemesis.machine import CLOCKS, DISKS, LIMITS, STOPS
from tests.integration.nemesis.promotion import PROMOTIONS, Pair
from tests.integration.nemesis.small_disk import mounts_of_our_own

_ERRORS = 200
"""Lines of each log of the server."""
FAULTS = {
    "kills": KILLS,
    "stops": STOPS,
    "limits": LIMITS,
    "disks": DISKS,
    "clocks": CLOCKS,
    "answers": ANSWERS,
    "promotions": PROMOTIONS,
    "clusters": CLUSTERS,
}
DATABASES = {**private_database.MAKERS, "standby": Pair, "galera": Cluster}


def main() -> int:
    """Let clients deal while faults strike; 1 when anything is wrong in the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.nemesis")
    parser.add_argument("--database", choices=DATABASES, default="postgresql")
    parser.add_argument("--seed", default="1", help="what the same choices are made from again")
    parser.add_argument("--minutes", type=float, default=0.0, help="at least; no less than a round")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds of one standstill")
    parser.add_argument("--tellers", type=int, default=4)
    parser.add_argument("--pace", type=int, default=20, help="writes between two faults")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    options = parser.parse_args()
    if missing := _missing(options.database):
        parser.error(missing)
    # a database that is struck answers to no rollback, of which the pool logs a traceback
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    may_mount, has_clock = mounts_of_our_own(), clocks.missing() is None
    # of several databases one would have to be filled
    has_one = options.database in private_database.MAKERS
    if "disks" in options.only and not may_mount:
        sys.stdout.write("no full disks: this process may not mount\n")
    if "clocks" in options.only and not has_clock:
        sys.stdout.write(f"no clock steps: {clocks.missing()}\n")
    # a path that the database's own user may enter, short enough for a socket
    directory = Path("/tmp") / f"nemesis-{secrets.token_hex(4)}"
    directory.mkdir()
    try:
        report = bank.run(
            DATABASES[options.database],
            directory,
            options.seed,
            tellers=options.tellers,
            seconds=options.minutes * 60,
            pace=options.pace,
            longest=options.longest,
            faults=[fault for name in options.only for fault in FAULTS[name]],
            equipment=bank.Equipment(
                small_disks=may_mount and has_one and "disks" in options.only,
                answers="answers" in options.only,
                clock=has_clock and "clocks" in options.only,
            ),
            log=_print,
        )
        if report.violations:
            _print_errors(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _print(str(report))
    return bool(report.violations)


def _print_errors(directory: Path) -> None:
    """Print the last errors of the server, whose logs are deleted with the directory."""
    for log in sorted(directory.glob("server-*.log")):
        errors = [
            line for line in log.read_text(errors="replace").splitlines() if " ERROR " in line
        ]
        _print("\n".join([f"{log.name}:", *errors[-_ERRORS:]]))


def _missing(database: str) -> str | None:
    """Return why there can be no such database here."""
    if database == "galera":
        return galera_missing()
    return private_database.missing("postgresql" if database == "standby" else database)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
