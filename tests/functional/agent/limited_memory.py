"""An agent that may have so many bytes of memory and no more: BYTES and the agent's arguments."""

from __future__ import annotations

import resource
import sys

from compute_agent.cmd.agent import main as agent


def main() -> int:
    """Set the limit, then be the agent."""
    limit = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return agent.main()


if __name__ == "__main__":
    sys.exit(main())
