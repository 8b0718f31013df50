"""The command `compute-agent doctor`: faults now, or at the next start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.agent import assembly
from compute_agent.agent.local_socket import AgentNotRunning
from compute_agent.cmd.agent.claims import ask_agent
from compute_agent.cmd.agent.inspection import troubles
from compute_agent.manage.diagnosis import Diagnosis, Level
from compute_agent.manage.disks import examine_disks
from compute_agent.manage.doctor import (
    examine,
    examine_bus,
    examine_options,
    examine_placement,
)
from compute_agent.placement.connection import Connection
from compute_agent.placement.transports.keystone import KeystoneTransport

if TYPE_CHECKING:
    from oslo_config import cfg


def run(conf: cfg.ConfigOpts, *, as_json: bool) -> int:
    """Print every diagnosis and return the worst level: 0 fine, 1 warnings, 2 errors."""
    diagnoses = list(_diagnoses(conf))
    if as_json:
        print(
            json.dumps({"diagnoses": [_document(diagnosis) for diagnosis in diagnoses]}, indent=2)
        )
    else:
        for diagnosis in diagnoses:
            print(f"{diagnosis.level.name.lower():8} {diagnosis.subject}: {diagnosis}")
    return max((diagnosis.level for diagnosis in diagnoses), default=Level.FINE)


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    document: dict[str, Any] = {
        "level": diagnosis.level.name.lower(),
        "subject": diagnosis.subject,
        "text": str(diagnosis),
    }
    if diagnosis.advice is not None:
        document["set"] = asdict(diagnosis.advice)
    return document


def report_configuration(error: errors.InvalidConfiguration, *, as_json: bool) -> int:
    """Print that the configuration cannot be read, which ends all other checks."""
    if as_json:
        diagnosis = {"level": "error", "subject": "configuration", "text": str(error)}
        print(json.dumps({"diagnoses": [diagnosis]}, indent=2))
    else:
        print(f"error    configuration: {error}")
    return Level.ERROR


def _diagnoses(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    yield from examine_options(conf)
    yield from examine_placement(Connection(KeystoneTransport.from_conf(conf)))
    yield from examine_bus(conf)
    yield from examine_disks(conf)
    yield from _troubles_of_the_running_agent(conf)
    try:
        parts = assembly.build(conf, read_only=True)
    except errors.ComputeAgentError as error:
        identity = isinstance(error, errors.InvalidNodeConfiguration)
        yield Diagnosis(Level.ERROR, "identity" if identity else "configuration", str(error))
        return
    try:
        yield from examine(parts)
    finally:
        parts.close()


def _troubles_of_the_running_agent(conf: cfg.ConfigOpts) -> Iterator[Diagnosis]:
    """Yield what keeps it from reporting now; nothing where none runs, which is no fault here."""
    try:
        status = ask_agent(conf, "status")
    except AgentNotRunning:
        return
    except errors.ComputeAgentError as error:
        yield Diagnosis(Level.ERROR, "running agent", str(error))
        return
    for call in status.get("hung_calls", ()):
        text = f"{call['source']} hangs in {call['call']} since {call['since']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
    for name, trouble in troubles(status):
        text = f"{name}: {trouble['what']} since {trouble['since']}: {trouble['message']}"
        yield Diagnosis(Level.ERROR, "running agent", text)
