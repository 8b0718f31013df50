"""`compute-manage` in a process that is killed before one of its writes to placement.

python killed_before_write.py NUMBER_OF_THE_WRITE ARGUMENTS...
"""

import os
import signal
import sys
from itertools import count
from typing import Any

from compute_agent.cmd.manage import main as manage
from compute_agent.placement.in_process import InProcessTransport
from compute_agent.placement.transport import WRITES, Response


def main() -> int:
    doomed = int(sys.argv[1])
    numbers = count(1)
    send = InProcessTransport.request

    def request(self: InProcessTransport, method: str, *rest: Any, **named: Any) -> Response:
        if method in WRITES and next(numbers) == doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return send(self, method, *rest, **named)

    InProcessTransport.request = request  # type: ignore[assignment,method-assign]
    return manage.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
