"""`compute-manage` in a process that is killed before, within or after a write to placement.

python killed_before_write.py NUMBER_OF_THE_WRITE[:commit|:answer] ARGUMENTS...

With `:commit` the database has the statements of the write and no commit yet, with `:answer` the
write is done.
"""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count

import sqlalchemy as sa

from compute_agent.cmd.manage import main as manage
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Request, Response


def main() -> int:
    doomed, _, place = sys.argv[1].partition(":")
    numbers = count(1)

    def end(*_arguments: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def killing(forward: Callable[[object, Request], Response]) -> Callable[..., Response]:
        def send(transport: object, request: Request) -> Response:
            is_doomed = request.writes and next(numbers) == int(doomed)
            if is_doomed and place == "commit":
                sa.event.listen(sa.Engine, "commit", end)
            elif is_doomed and not place:
                end()
            answer = forward(transport, request)
            if is_doomed:
                end()
            return answer

        return send

    for kind in (InProcessTransport, KeystoneTransport):
        kind.send = killing(kind.send)  # type: ignore[method-assign,arg-type,attr-defined]
    return manage.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
