"""The command `compute-agent doctor`: faults now, or at the next start."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from compute_agent import __version__, errors
from compute_agent.agent import assembly
from compute_agent.agent.availability import AUTOMATIC
from compute_agent.agent.local_socket import AgentNotRunning
from compute_agent.cmd import logging_setup
from compute_agent.cmd.agent.running import ask_agent, troubles
from compute_agent.cmd.output import show
from compute_agent.daemon import reload
from compute_agent.daemon.message_bus import BusState
from compute_agent.manage.diagnosis import Diagnosis, Level
from compute_agent.manage.doctor import (
    examine,
    examine_bus,
    examine_disks,
    examine_options,
    examine_placement,
)
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.tracker.status import UNFOLLOWED

if TYPE_CHECKING:
    from oslo_config import cfg


def doctor(namespace: argparse.Namespace) -> int:
    """Print every diagnosis and return the worst level: 0 fine, 1 warnings, 2 errors."""
    try:
        conf = logging_setup.quiet_configuration(namespace)
    except errors.InvalidConfiguration as error:
        # it ends all other checks
        diagnoses = [Diagnosis(Level.ERROR, "configuration", str(error))]
    else:
        diagnoses = list(_diagnoses(conf))
    show(
        namespace,
        {"diagnoses": list(map(_document, diagnoses))},
        *(f"{d.level.name.lower():8} {d.subject}: {d}" for d in diagnoses),
    )
    return max((diagnosis.level for diagnosis in diagnoses), default=Level.FINE)


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = {
        "level": diagnosis.level.name.lower(),
        "subject": diagnosis.subject,
        "text": str(diagnosis),
    }
    if diagnosis.advice is not None:
        document["set"] = to_builtins(diagnosis.advice)
    return document


def _diagnoses(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    yield from examine_options(conf)
    placement = list(examine_placement(Connection(KeystoneTransport.from_conf(conf))))
    yield from placement
    yield from examine_bus(conf)
    yield from examine_disks(conf)
    yield from _troubles_of_the_running_agent(conf)
    try:
        parts = assembly.build(conf, read_only=True)
    except errors.ComputeAgentError as error:
        identity = isinstance(error, errors.InvalidNodeConfiguration)
        yield Diagnosis(Level.ERROR, "identity" if identity else "configuration", str(error))
        return
    # the next start meets the outage that is named above
    named = {d.subject for d in placement if d.level is Level.ERROR} & {"placement"}
    with closing(parts):
        yield from (d for d in examine(parts) if d.subject not in named)


def _troubles_of_the_running_agent(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Yield what keeps it from reporting now; nothing where none runs, which is no fault here."""
    try:
        status = ask_agent(conf, "status")
    except AgentNotRunning:
        return
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, "running agent", str(error))
        return
    yield from shown_faults(status)


def shown_faults(status: Mapping[str, Any]) -> Iterator[Diagnosis]:
    """Yield what is wrong by the status of a running agent; what an operator chose is fine."""
    if (version := status["version"]) != __version__:
        # a status of another version may have other keys
        text = (
            f"it is of version {version}, and {__version__} is installed: restart it. It loads "
            "some modules when they are needed, and must not mix two versions"
        )
        yield Diagnosis(Level.WARNING, "running agent", text)
        return
    for call in status.get("hung_calls", ()):
        text = f"{call['source']} hangs in {call['call']} since {call['since']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    for name, trouble in troubles(status):
        text = f"{name}: {trouble['what']} since {trouble['since']}: {trouble['message']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    if (state := status.get("state")) is not None:
        text = f"its state is not written since {state['since']}: {state['message']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    if (failure := status.get("reload")) is not None:
        text = f"it was {reload.shown_failure(failure)}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    if (bus := status["bus"])["state"] in (BusState.REFUSED, BusState.UNREACHABLE):
        text = f"its message bus is {bus['state']} since {bus['since']}: {bus['why']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    if (feed := status["changes"])["state"] in UNFOLLOWED:
        text = (
            "only periodic passes find changes in placement ([compute_agent]follow_changes): the "
            f"feed of changes is {feed['state']} since {feed['since']}: {feed['why']}"
        )
        yield Diagnosis(Level.WARNING, "running agent", text)
    for node in status["nodes"]:
        if faulty := node["faulty"]:
            text = f"{node['name']} has devices that are marked as broken: {', '.join(faulty)}"
            yield Diagnosis(Level.WARNING, "running agent", text)
        if not node["enabled"]:
            reason = node["disabled_reason"] or "no reason given"
            level = Level.WARNING if reason.startswith(AUTOMATIC) else Level.FINE
            text = f"{node['name']} takes no new instances: {reason}"
            yield Diagnosis(level, "running agent", text)
