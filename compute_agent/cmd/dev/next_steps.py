"""Next commands to type, which work as they are printed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from compute_agent.cmd.dev.sample import Sample

_HOME = "~/"


def next_steps(
    environment: Path, home: str, hosts: Sequence[str], sample: Sample | None, *, answers: bool
) -> list[tuple[str, str]]:
    """Return pairs of a command's purpose and the command.

    :param environment: the file that a shell reads first.
    :param home: the home directory of the user.
    :param hosts: names of the hosts that are reported.
    :param sample: the claim that was made; None where nothing is free.
    :param answers: whether the agent answers commands.
    """
    first = shlex.quote(hosts[0])
    steps = [
        ("let the shell know this run, once", f". {_short(environment, home)}"),
        ("the tree, as placement has it", f"placement tree {first}"),
    ]
    if sample is not None:
        steps += [
            ("claim", f"compute-scheduler claim {sample.options}"),
            ("give back", "compute-scheduler release CONSUMER"),
            ("where it would fit, or why not", f"compute-scheduler explain {sample.options}"),
        ]
    steps.append(("all hosts", "compute-manage host list"))
    if answers:
        steps.append(("how the agent is", "compute-agent status"))
    steps.append(("what the agent would change now", "compute-agent plan"))
    return steps


def _short(path: Path, home: str) -> str:
    """Return a path as a person types it."""
    below = str(path).removeprefix(home.rstrip("/") + "/")
    if home and below != str(path):
        return _HOME + shlex.quote(below)
    return shlex.quote(str(path))
