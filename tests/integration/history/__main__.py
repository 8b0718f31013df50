"""The command line of long histories."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from tests.fixtures.databases import migrate
from tests.fixtures.private_databases import KINDS, private_database
from tests.integration.bank.service import Service
from tests.integration.history.clients import TOTAL, Recorder, act_together
from tests.integration.history.model import contradictions

_SECONDS_BETWEEN_KILLS = 5.0


def main() -> int:
    """Record one history and check it; 1 when no order explains it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=KINDS, default="postgresql")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--kill", action="store_true", help="kill a worker every five seconds")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        private_database(options.database, Path(name)) as url,
    ):
        migrate(url)
        service = Service(Path(name), url, workers=3, threads=2)
        recorder = Recorder(service.start())
        try:
            recorder.make_world()
            kills = _run(recorder, service, options)
        finally:
            service.stop()
    begun = time.monotonic()
    wrong = list(contradictions(recorder.operations, dict.fromkeys(recorder.providers, TOTAL)))
    counts = Counter(f"{operation.kind} {operation.result}" for operation in recorder.operations)
    sys.stdout.write(
        f"{len(recorder.operations)} operations in {options.seconds:.0f} s, {kills} kills: "
        f"{dict(sorted(counts.items()))}; checked in {time.monotonic() - begun:.0f} s\n"
    )
    sys.stdout.write("".join(f"wrong: {text}\n" for text in wrong) or "an order explains it\n")
    return bool(wrong)


def _run(recorder: Recorder, service: Service, options: argparse.Namespace) -> int:
    """Let the clients act for the time that was asked for; return how many workers were killed."""
    dice, over, kills = random.Random(options.seed), threading.Event(), 0
    ends = time.monotonic() + options.seconds
    with ThreadPoolExecutor(1) as pool:
        clients = pool.submit(
            act_together, recorder, options.clients, options.seed, lambda: not over.is_set()
        )
        try:
            while time.monotonic() < ends and not clients.done():
                wait([clients], _SECONDS_BETWEEN_KILLS)
                if options.kill:
                    service.kill_worker(dice)
                    kills += 1
        finally:
            over.set()
        # an answer that a client did not expect is raised here
        clients.result()
    return kills


if __name__ == "__main__":
    sys.exit(main())
