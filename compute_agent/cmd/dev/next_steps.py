"""Next commands to type, which work as they are printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from compute_agent.cmd.dev.state_directory import StateDirectory

_HEADERS = "-H 'OpenStack-API-Version: placement 1.39' -H 'X-Auth-Token: admin'"


def next_steps(
    state: StateDirectory, url: str, root: str, resources: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return pairs of a command's purpose and the command."""
    config = f"--config-file {shlex.quote(str(state.agent_config))}"
    requested = ",".join(f"{name}={amount}" for name, amount in resources.items())
    queried = ",".join(f"{name}:{amount}" for name, amount in resources.items())
    agent, scheduler = command("compute-agent"), command("compute-scheduler")
    steps = [("the tree, as placement has it", f"{agent} show {config}")]
    if requested:
        steps += [
            ("claim", f"{scheduler} {config} claim --resources {requested}"),
            ("give back", f"{scheduler} {config} release CONSUMER"),
        ]
    steps.append(("what the agent would change now", f"{agent} plan {config}"))
    if state.agent_answers:
        steps.append(("how the agent is", f"{agent} status {config}"))
    steps.append(("providers", f"curl -s {_HEADERS} '{url}/resource_providers?in_tree={root}'"))
    if queried:
        steps.append(
            (
                "candidates",
                f"curl -s {_HEADERS} '{url}/allocation_candidates?resources={queried}&limit=3'",
            )
        )
    return steps


def command(name: str) -> str:
    """Return the call of a command of this installation: its name where the shell finds just it."""
    script = Path(sys.executable).parent / name
    path = shutil.which(name)
    if not script.exists() or (path and Path(path).resolve() == script.resolve()):
        return name
    return shlex.quote(str(script))
