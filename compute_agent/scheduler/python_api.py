"""Python API of the scheduler: a `LifeCycle`, made from configuration files.

from compute_agent.scheduler.python_api import LifeCycle, connect, read_spec

scheduler = connect("/etc/compute-scheduler/compute-scheduler.conf")
claim = scheduler.claim(read_spec({...}), instance_uuid)
"""

from __future__ import annotations

from compute_agent.conf import new_config
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.request.spec_reader import read_spec
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.bus import running_scheduler
from compute_agent.scheduler.errors import MoveRefused, NoValidHost
from compute_agent.scheduler.life_cycle.life_cycle import Claim, LifeCycle
from compute_agent.scheduler.moves.attachments import Attachment
from compute_agent.scheduler.moves.move import Move, MoveKind
from compute_agent.scheduler.moves.mover import MoveStart

__all__ = [
    "Attachment",
    "Claim",
    "LifeCycle",
    "Move",
    "MoveKind",
    "MoveRefused",
    "MoveStart",
    "NoValidHost",
    "connect",
    "read_spec",
]


def connect(*config_files: str) -> LifeCycle:
    """Return the life cycle of instances by a scheduler with the configuration of these files.

    Where they name a message bus, a running scheduler is asked which hosts are alive, and
    all that run remember what is claimed.

    :raises InvalidConfiguration: the configuration cannot be used.
    :raises NoSchedulerAnswers: there is a bus, and no scheduler on it. Its methods raise it too.
    """
    conf = new_config([f"--config-file={file}" for file in config_files])
    transport = KeystoneTransport.from_conf(conf)
    if not conf.transport_url:
        return LifeCycle(parts_of(conf, transport, serving=False))
    return LifeCycle(
        parts_of(
            conf,
            transport,
            running_scheduler.announcements(conf),
            serving=False,
            recent_claims=running_scheduler.ClaimsOfSchedulers(conf),
        )
    )
