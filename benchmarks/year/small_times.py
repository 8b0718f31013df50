"""The programs of the server with their housekeeping as much shorter as the year is.

python -m benchmarks.year.small_times SECONDS PROGRAM ARGUMENT...

Change records are kept for so many seconds instead of ten minutes, rows that are out of use for as
many instead of a day, and a worker remembers ids for a quarter of that.
"""

import sys
from datetime import timedelta

from placement_server.cmd import programs
from placement_server.store import unused
from placement_server.store.changes import changes
from placement_server.store.transactions import known_owners


def main() -> int:
    seconds, program, *arguments = sys.argv[1:]
    vars(changes)["KEPT_FOR"] = vars(unused)["MARKED_FOR"] = timedelta(seconds=float(seconds))
    vars(known_owners)["LIFETIME"] = float(seconds) / 4
    sys.argv = [program, *arguments]
    status: int = getattr(programs, program.replace("-", "_"))()
    return status


if __name__ == "__main__":
    sys.exit(main())
