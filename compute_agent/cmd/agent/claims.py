"""The commands `compute-agent claims` and `drop-claim`, through the running agent or its files.

Claims outlive the agent. An agent that refuses to start because a device is
gone must still learn that the instance does without it, so both work without a running agent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.agent import local_socket
from compute_agent.agent.local_socket import AgentNotRunning
from compute_agent.drift.wording import resources
from compute_agent.state.files import AgentLock
from compute_agent.state.ledger import Ledger

if TYPE_CHECKING:
    from oslo_config import cfg

TIMEOUT = 30.0


def show(conf: cfg.ConfigOpts, *, as_json: bool) -> int:
    """Print the claims.

    :raises StateUnusable: no agent runs and its state cannot be read.
    """
    try:
        claims: Sequence[Mapping[str, Any]] = ask_agent(conf, "claims")
    except AgentNotRunning:
        ledger = Ledger(Path(conf.state_path), read_only=True)
        claims = [claim.document() for _consumer, claim in sorted(ledger.claims().items())]
    if as_json:
        print(json.dumps({"claims": claims}, indent=2))
        return 0
    for claim in claims:
        behind = "" if claim["instance"] == claim["consumer"] else f"  of {claim['instance']}"
        print(f"{claim['consumer']}  node {claim['node']}{behind}")
        for uuid, classes in sorted(claim["amounts"].items()):
            print(f"  provider {uuid}: {resources(classes)}")
        for unit in claim["units"]:
            print(f"  {unit['resource_class']} {unit['name']}")
        for cell in claim.get("cells", ()):
            pages = f" in pages of {cell['page_size_kib']} KiB" if cell["page_size_kib"] else ""
            print(f"  NUMA cell {cell['cell']}: {cell['memory_mib']} MiB{pages}")
    if not claims:
        print("no claims")
    return 0


def request_of(path: str) -> Any:
    """Return the request in a file of JSON; - is stdin.

    :raises InvalidInput: the file cannot be read, or is not JSON.
    """
    try:
        return json.loads(sys.stdin.read() if path == "-" else Path(path).read_text())
    except (OSError, ValueError) as error:
        raise errors.InvalidInput(f"{path} cannot be read as a request in JSON: {error}") from error


def drop(conf: cfg.ConfigOpts, consumer: str) -> int:
    """Drop the claim of an instance or a migration; return 1 if there was none.

    :raises AgentRunning: an agent runs and cannot be asked.
    """
    try:
        was_dropped = bool(ask_agent(conf, "drop_claim", instance=consumer))
    except AgentNotRunning:
        was_dropped = _dropped_from_state(Path(conf.state_path), consumer)
    print(f"{consumer}: {'dropped' if was_dropped else 'holds nothing on this host'}")
    return 0 if was_dropped else 1


def _dropped_from_state(state_path: Path, consumer: str) -> bool:
    with AgentLock(state_path):
        ledger = Ledger(state_path)
        had_claim = consumer in ledger.claims()
        ledger.change_claims(drop=[consumer])
    return had_claim


def ask_agent(
    conf: cfg.ConfigOpts, command: str, timeout: float = TIMEOUT, **arguments: object
) -> Any:
    """Return the answer of the running agent.

    :raises AgentNotRunning: none runs, or it has no socket.
    """
    path = conf.compute_agent.status_socket
    if not path:
        raise AgentNotRunning(
            "[compute_agent]status_socket is empty, so the agent cannot be asked. Set it, restart "
            "the agent and try again."
        )
    return local_socket.ask(Path(path), command, timeout, **arguments)
