"""The command line of the histories of hosts."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import libvirt

from tests.fixtures.databases import end, fresh_database, postgresql_missing, start_postgresql
from tests.fixtures.libvirtd import libvirtd_missing
from tests.fixtures.rabbitmq import RabbitMq, rabbitmq_missing
from tests.integration.holders.cloud import captured_machines, running_cloud
from tests.integration.holders.emulated import emulated_machines
from tests.integration.holders.run import run


def main() -> int:
    """Record one history and print what came of it; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.holders")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between two kills")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--emulated", action="store_true", help="on a host that QEMU emulates")
    options = parser.parse_args()
    # of a daemon that is killed
    libvirt.registerErrorHandler(lambda *_: None, None)
    for missing in (postgresql_missing(), rabbitmq_missing(), libvirtd_missing()):
        if missing:
            parser.error(missing)
    with ExitStack() as ends:
        # a path that the database's own user may enter, short enough for a socket
        directory = Path("/tmp") / f"holders-{secrets.token_hex(4)}"
        (directory / "broker").mkdir(parents=True)
        ends.callback(shutil.rmtree, directory, ignore_errors=True)
        broker = RabbitMq(directory / "broker", one_cpu=True)
        server = start_postgresql(directory / "postgresql")
        ends.callback(end, server)
        broker.start()
        ends.callback(broker.stop)
        database = ends.enter_context(fresh_database(server, migrated=False))
        machines = ends.enter_context(
            emulated_machines(directory)
            if options.emulated
            else captured_machines(directory, directory)
        )
        cloud = ends.enter_context(running_cloud(directory, database, broker, machines))
        over = time.monotonic() + options.seconds
        try:
            done = run(
                cloud,
                lambda _done: time.monotonic() > over,
                seed=options.seed,
                clients=options.clients,
                pause=options.pause,
            )
        except BaseException:
            for log in sorted(directory.rglob("*.log")):
                sys.stdout.write(f"== {log}\n{log.read_text(errors='replace')[-3000:]}\n")
            raise
    sys.stdout.write(f"{dict(sorted(done.items()))}, in {options.seconds:.0f} s\n")
    wrong = "".join(f"wrong: {sentence}\n" for sentence in cloud.wrong)
    sys.stdout.write(wrong or "nothing is wrong\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
