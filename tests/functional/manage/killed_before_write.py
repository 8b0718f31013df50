"""`compute-manage` in a process that is killed before one of its writes to placement.

python killed_before_write.py NUMBER_OF_THE_WRITE ARGUMENTS...
"""

import os
import signal
import sys
from itertools import count

from compute_agent.cmd.manage import main as manage
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request, Response


def main() -> int:
    doomed = int(sys.argv[1])
    numbers = count(1)
    forward = InProcessTransport.send

    def send(self: InProcessTransport, request: Request) -> Response:
        if request.writes and next(numbers) == doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return forward(self, request)

    InProcessTransport.send = send  # type: ignore[method-assign]
    return manage.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
