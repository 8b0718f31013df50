"""placement-server's application under cheroot, to compare: `... CONFIG_FILE PORT THREADS`."""

import signal
import sys

from cheroot import wsgi

from placement_server.app import build_app
from placement_server.conf import new_config


def main() -> None:
    config, port, threads = sys.argv[1:]
    server = wsgi.Server(
        ("127.0.0.1", int(port)),
        build_app(new_config(config_files=[config])),
        numthreads=int(threads),
        max=int(threads),
        request_queue_size=2048,
        timeout=75,
        shutdown_timeout=30,
    )

    def stop(number: int, frame: object) -> None:
        del number, frame
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    try:
        server.start()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
