"""Fuzzed requests of several kinds at a real server, from a seed.

python -m tests.integration.fuzz --requests 1000000 --seed 1 --database postgresql

prints the statuses of each kind of request and the memory of the workers. It ends with 1 when an
answer was 500, malformed or HTML that nobody asked for, a well-formed request had none, a worker
ended or kept more memory than it may, or the log has a traceback.
`--exchange N` sends exchange N of a seed again.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from pathlib import Path

from tests.fixtures.databases import migrate
from tests.fixtures.private_databases import KINDS, private_database
from tests.integration.bank.service import Service
from tests.integration.fuzz.campaign import Campaign, Findings


def main() -> int:
    """Run one campaign and print what it found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000, help="answers to wait for")
    parser.add_argument("--seconds", type=float, default=math.inf, help="the longest it may take")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--database", choices=KINDS, default="sqlite")
    parser.add_argument("--clients", type=int, default=6, help="connections at a time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--exchange", type=int, action="append", metavar="N", help="only these of the seed"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        private_database(options.database, Path(name)) as url,
    ):
        migrate(url)
        service = Service(Path(name), url, workers=options.workers, threads=4)
        campaign = Campaign(
            service, service.start(), options.seed, options.requests, options.seconds
        )
        try:
            if options.exchange:
                findings = campaign.repeat(options.exchange)
            else:
                findings = campaign.run(options.clients)
        finally:
            service.stop()
    sys.stdout.write(report(findings))
    return bool(findings.wrong)


def report(findings: Findings) -> str:
    """The findings as lines."""
    rows = [
        f"{findings.answered} answers to {findings.exchanges} connections "
        f"in {findings.seconds:.0f} s"
    ]
    for kind, statuses in sorted(findings.statuses.items()):
        counts = ", ".join(f"{status}: {number}" for status, number in sorted(statuses.items()))
        rows.append(f"  {kind}: {statuses.total()} ({counts}); {findings.cut[kind]} without answer")
    for pid, sizes in findings.resident.items():
        rows.append(f"  worker {pid}: MiB {' -> '.join(f'{size:.1f}' for size in sizes)}")
    rows += (f"WRONG: {text}" for text in findings.wrong)
    rows.append("something is wrong" if findings.wrong else "nothing is wrong")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
