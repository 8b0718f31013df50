"""A placement that lies, by hand: `python -m tests.functional.lies URL [LIE]`.

Stands before the placement at URL. Without LIE it prints the menu; with it, every request is
answered by that lie until the program is interrupted.
"""

import sys
import threading

from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.lies.menu import MENU


def main(upstream: str, name: str = "") -> None:
    """Lie until interrupted."""
    if name not in MENU:
        sys.stdout.write("\n".join(MENU) + "\n")
        return
    proxy = LyingProxy(upstream)
    proxy.lie(MENU[name].tell, "http://127.0.0.1:1")
    sys.stdout.write(f"{proxy.url}: {name}\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        proxy.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
