"""The command line of a burst."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fixtures.databases import (
    end,
    fresh_database,
    mariadb_missing,
    postgresql_missing,
    start_mariadb,
    start_postgresql,
)
from tests.fixtures.rabbitmq import RabbitMq, rabbitmq_missing
from tests.integration.burst.burst import reckon, run
from tests.integration.burst.fleet import Fleet


def main() -> int:
    """Run one burst and print what happened; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--schedulers", type=int, default=3)
    parser.add_argument("--claims", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--published",
        action="store_true",
        help="against the published openstack-placement, on MariaDB",
    )
    options = parser.parse_args()
    no_database = mariadb_missing() if options.published else postgresql_missing()
    for missing in (no_database, rabbitmq_missing()):
        if missing:
            parser.error(missing)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        broker = RabbitMq(directory / "broker", one_cpu=True)
        # a path that the database's own user may enter
        state = Path("/tmp") / f"burst-{secrets.token_hex(4)}"
        server = start_mariadb(state) if options.published else start_postgresql(state)
        broker.start()
        try:
            with (
                fresh_database(server, migrated=False) as database,
                Fleet(directory, database, broker, published=options.published).running(
                    options.hosts, options.schedulers
                ) as fleet,
            ):
                begun = time.monotonic()
                outcome, trouble = run(
                    fleet, options.claims, at_once=options.at_once, seed=options.seed
                )
                seconds = time.monotonic() - begun
                wrong = reckon(fleet, outcome)
        finally:
            broker.stop()
            end(server)
    sys.stdout.write(f"{outcome}, in {seconds:.0f} s\n{'; '.join(trouble.happened)}\n")
    sys.stdout.write("".join(f"wrong: {sentence}\n" for sentence in wrong) or "nothing is wrong\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
