"""The commands that ask the running agent, and those about claims, which outlive it.

An agent that refuses to start because a device is gone must still learn that the instance does
without it, so `claims` and `drop-claim` read the files of the agent where none runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from compute_agent import __version__, errors
from compute_agent.agent import local_socket
from compute_agent.agent.local_socket import AgentNotRunning
from compute_agent.cmd import program
from compute_agent.cmd.output import print_json, show
from compute_agent.daemon import reload
from compute_agent.drift.wording import resources
from compute_agent.placement.transports.transport import clock_fault
from compute_agent.programs.exit_status import Exit
from compute_agent.state.files import AgentLock
from compute_agent.state.ledger import Ledger

if TYPE_CHECKING:
    from oslo_config import cfg

STATUS_TIMEOUT: Final = 10.0
REPORT_TIMEOUT: Final = 330.0
ORDER_TIMEOUT: Final = 60.0


class OtherVersion(errors.ComputeAgentError):
    """The agent that runs was not restarted since its package was upgraded."""


def ask_agent(
    conf: cfg.ConfigOpts, command: str, timeout: float = STATUS_TIMEOUT, **arguments: object
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


def _ask(namespace: argparse.Namespace, command: str, timeout: float, **arguments: object) -> Any:
    return ask_agent(program.configuration(namespace), command, timeout, **arguments)


def status(namespace: argparse.Namespace) -> None:
    """Print the status."""
    print_status(_ask(namespace, "status", STATUS_TIMEOUT), as_json=namespace.json)


def report(namespace: argparse.Namespace) -> int:
    """Have a pass made now, and print the status after it."""
    arguments = {"node": namespace.node, "wait": not namespace.no_wait}
    document = _ask(namespace, "report", REPORT_TIMEOUT, **arguments)
    print_status(document, as_json=namespace.json)
    return Exit.FINE if namespace.no_wait else exit_status_of_passes(document)


def history(namespace: argparse.Namespace) -> None:
    """Print the last changes that the agent wrote."""
    changes = _ask(namespace, "history", STATUS_TIMEOUT)
    lines = [f"{c['at']}  {'lost ' if c['is_loss'] else ''}{c['text']}" for c in changes]
    show(namespace, changes, *lines or ["Nothing was changed in placement."])


def fit(namespace: argparse.Namespace) -> int:
    """Draw what a request would get.

    :raises InvalidInput: the file cannot be read, or is not JSON.
    """
    path = namespace.spec
    try:
        spec = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text())
    except (OSError, ValueError) as error:
        raise errors.InvalidInput(f"{path} cannot be read as a request in JSON: {error}") from error
    answer = _ask(namespace, "fit", ORDER_TIMEOUT, spec=spec, node=namespace.node)
    print("\n".join(answer["lines"]))
    return Exit.FINE if answer["fits"] else Exit.FAILED


def enable(namespace: argparse.Namespace) -> None:
    """Allow new instances on the host."""
    _ask(namespace, "set_host_enabled", ORDER_TIMEOUT, enabled=True)
    print("enabled")


def disable(namespace: argparse.Namespace) -> None:
    """Allow no new instances on the host."""
    _ask(namespace, "set_host_enabled", ORDER_TIMEOUT, enabled=False, reason=namespace.reason)
    print("disabled")


def clear_fault(namespace: argparse.Namespace) -> None:
    """Have a device reported again."""
    is_cleared = _ask(namespace, "clear_fault", ORDER_TIMEOUT, provider=namespace.provider)
    print("cleared" if is_cleared else f"{namespace.provider} is not marked as broken")


def claims(namespace: argparse.Namespace) -> None:
    """Print the claims.

    :raises StateUnusable: no agent runs and its state cannot be read.
    """
    conf = program.configuration(namespace)
    try:
        documents: Sequence[Mapping[str, Any]] = ask_agent(conf, "claims", ORDER_TIMEOUT)
    except AgentNotRunning:
        ledger = Ledger(Path(conf.state_path), read_only=True)
        documents = [to_builtins(claim) for _consumer, claim in sorted(ledger.claims().items())]
    lines = [line for claim in documents for line in _claim_lines(claim)]
    show(namespace, {"claims": documents}, *lines or ["no claims"])


def _claim_lines(claim: Mapping[str, Any]) -> Iterator[str]:
    behind = "" if claim["instance"] == claim["consumer"] else f"  of {claim['instance']}"
    yield f"{claim['consumer']}  node {claim['node']}{behind}"
    for uuid, classes in sorted(claim["amounts"].items()):
        yield f"  provider {uuid}: {resources(classes)}"
    for unit in claim["units"]:
        yield f"  {unit['resource_class']} {unit['name']}"
    for cell in claim["cells"]:
        pages = f" in pages of {cell['page_size_kib']} KiB" if cell["page_size_kib"] else ""
        yield f"  NUMA cell {cell['cell']}: {cell['memory_mib']} MiB{pages}"


def drop_claim(namespace: argparse.Namespace) -> int:
    """Drop the claim of an instance or a migration; return 1 if there was none.

    :raises AgentRunning: an agent runs and cannot be asked.
    """
    conf, consumer = program.configuration(namespace), namespace.consumer
    try:
        was_dropped = bool(ask_agent(conf, "drop_claim", ORDER_TIMEOUT, instance=consumer))
    except AgentNotRunning:
        state_path = Path(conf.state_path)
        with AgentLock(state_path):
            ledger = Ledger(state_path)
            was_dropped = consumer in ledger.claims()
            ledger.change_claims(drop=[consumer])
    print(f"{consumer}: {'dropped' if was_dropped else 'holds nothing on this host'}")
    return Exit.FINE if was_dropped else Exit.FAILED


def print_status(document: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the status document.

    :raises OtherVersion: an agent of another version wrote it, with other keys.
    """
    if as_json:
        print_json(document)
        return
    try:
        _print_status(document)
    except KeyError as error:
        raise OtherVersion(
            f"The agent that runs is of version {document.get('version')}, and its status has no "
            f"{error}, which this command of version {__version__} shows. Restart the agent, or "
            "add --json to see all that it says."
        ) from error


def _print_status(document: Mapping[str, Any]) -> None:
    placement = document["placement"]
    reachable = {True: "answers", False: "cannot be reached", None: "has not answered yet"}
    print(f"agent      {document['host']}, pid {document['pid']}, since {document['started']}")
    print(f"placement  {reachable[placement['up']]} since {placement['since'] or '-'}")
    changes = document["changes"]
    if changes["state"] != "off":
        why = f": {changes['why']}" if changes["why"] else ""
        print(
            f"changes    {changes['state']} since {changes['since']}, {changes['changes']} so far"
            f"{why}"
        )
    if fault := clock_fault(placement["clock_offset"]):
        print(f"clock      {fault}")
    print(f"bus        {_bus_text(document['bus'])}")
    if (state := document["state"]) is not None:
        print(f"state      not written since {state['since']}: {state['message']}")
    if (failure := document["reload"]) is not None:
        print(f"options    {reload.shown_failure(failure)}")
    for claim in document.get("running_claims", ()):
        seconds = time.time() - claim["since"]
        print(f"claim      {claim['instance']} {claim['stage']}, for {seconds:.0f} s")
    if undecided := document["totals"]["undecided_claims"]:
        print(f"claims     {undecided} refused: their fit was not decided; the log names them")
    for call in document["hung_calls"]:
        print(f"hangs      {call['source']}: {call['call']}, since {call['since']}")
    if (trouble := document["trouble"]) is not None:
        print("nodes      not known yet" if not document["nodes"] else "nodes      as last found")
        print(_trouble_text(trouble))
    for node in document["nodes"]:
        _print_node_status(node)


def exit_status_of_passes(document: Mapping[str, Any]) -> int:
    """Return 0 if every node of a status document was reported, else the status of its trouble."""
    from compute_agent.tracker.decisions import EventKind, ExitCode, exit_code_for

    kinds = {kind.value: kind for kind in EventKind}
    for _name, trouble in troubles(document):
        kind = kinds.get(trouble["what"])
        return ExitCode.DRIVER_FAILED if kind is None else exit_code_for(kind)
    is_reported = document["nodes"] and not any(node["startup"] for node in document["nodes"])
    return Exit.FINE if is_reported else ExitCode.DRIVER_FAILED


def troubles(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what keeps an agent from reporting, by its status: each with the node, or `host`."""
    for entry in (document, *document["nodes"]):
        if (trouble := entry.get("trouble")) is not None:
            yield entry.get("name", "host"), trouble


def _trouble_text(trouble: Mapping[str, Any]) -> str:
    return (
        f"  trouble since {trouble['since']}, seen {trouble['seen']} time(s): "
        f"{trouble['what']}: {trouble['message']}"
    )


def _bus_text(bus: Mapping[str, Any]) -> str:
    texts = {
        "off": "none is configured ([DEFAULT]transport_url)",
        "waiting": "is joined once a node has been reported",
    }
    why = f": {bus['why']}" if bus["why"] else ""
    return texts.get(bus["state"], f"{bus['state']} since {bus['since']}{why}")


def _print_node_status(node: Mapping[str, Any]) -> None:
    print(f"node       {node['name']}  {node['uuid']}")
    if not node["enabled"]:
        print(f"  disabled: {node['disabled_reason'] or 'no reason given'}")
    last = node["last_pass"]
    if last is not None:
        print(
            f"  last pass {last['at']}: {last['outcome']}, {last['seconds']} s, "
            f"{last['requests']} request(s), {last['changes']} change(s), "
            f"{last['providers']} provider(s)"
        )
    print(f"  last success {node['last_success'] or 'never'}")
    if node["reshape_pending"]:
        print("  a reshape is pending: restart the agent")
    if node["trouble"] is not None:
        print(_trouble_text(node["trouble"]))
    for caveat in node["caveats"]:
        print(f"  warning: {caveat}")
    if faulty := node["faulty"]:
        print(f"  marked as broken: {', '.join(faulty)}; see compute-agent clear-fault")
    for loss in node["losses"]:
        print(f"  lost {loss['at']}: {loss['text']}")
    for gpu in node["gpus"]:
        _print_slices(gpu)
    _print_cores(node.get("cells", ()))
    for kind, consumers in sorted(node["drift"].items()):
        if consumers:
            print(f"  drift, {kind}: {', '.join(consumers)}")
    if why := node["orphans_unknown"]:
        print(f"  drift, orphaned: unknown: {why}")


def _print_cores(cells: Sequence[Mapping[str, Any]]) -> None:
    """Print which guest has which dedicated CPUs, each with a letter."""
    letters: dict[str, str] = {}
    for cell in cells:
        cores = []
        for core in cell["cores"]:
            cpus = []
            for cpu, guest in core:
                if guest is not None and guest not in letters:
                    number = len(letters)
                    letters[guest] = f"{ascii_lowercase[number % 26]}{number // 26 or ''}"
                cpus.append(f"{cpu}{letters.get(guest, '')}")
            cores.append(f"({' '.join(cpus)})")
        print(f"  cell {cell['id']}, cores {''.join(cores)}")
    for guest, letter in letters.items():
        print(f"    {letter}: {guest}")


def _print_slices(gpu: Mapping[str, Any]) -> None:
    profile_counts = Counter(device["profile"] for device in gpu["mig_devices"])
    more = {profile: count for profile, count in gpu["mig_remaining"].items() if count}
    parts = [f"{count} x {profile}" for profile, count in sorted(profile_counts.items())]
    if more:
        room = " or ".join(f"{count} x {profile}" for profile, count in sorted(more.items()))
        parts.append(f"room for {room}")
    if parts:
        print(f"  GPU {gpu['address']}, MIG: {', '.join(parts)}")
