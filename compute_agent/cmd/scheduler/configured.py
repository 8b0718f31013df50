"""The scheduler and its parts, assembled from configuration and options."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from compute_agent import errors
from compute_agent.cmd import logging_setup, program
from compute_agent.state.documents import FileUnusable, read_named

if TYPE_CHECKING:
    from oslo_config import cfg

    from compute_agent.scheduler.assembly import SchedulerParts
    from compute_agent.scheduler.fleet.announcements import Announcements
    from compute_agent.scheduler.life_cycle.life_cycle import Claim
    from compute_agent.scheduler.placement.client import PlacementClient


def read_json(file: str) -> dict[str, Any]:
    """Return the JSON object in a file, or on standard input for `-`.

    :raises InvalidRequest: it cannot be read, or is not an object.
    """
    from compute_agent.request.errors import InvalidRequest

    source_name = "standard input" if file == "-" else file
    try:
        body = json.loads(read_named(file))
    except FileUnusable as error:
        raise InvalidRequest("FILE", source_name, f"a JSON specification (it {error})") from error
    except (RecursionError, ValueError) as error:
        raise InvalidRequest("FILE", source_name, f"a JSON specification ({error})") from error
    if not isinstance(body, dict):
        raise InvalidRequest("FILE", source_name, "one JSON object, the request specification")
    return body


def assemble(namespace: argparse.Namespace, *, chooses: bool = False) -> SchedulerParts:
    """Return the parts of a scheduler made from the configuration.

    :param chooses: whether hosts will be chosen, which needs to know those that are alive.
    :raises InvalidConfiguration: the configuration cannot be used.
    """
    from compute_agent.scheduler.assembly import parts_of

    conf = logging_setup.quiet_configuration(namespace)
    # taking a named host although it is silent is worth a warning
    logging.getLogger("compute_agent.scheduler.search.search").setLevel(logging.WARNING)
    transport = program.transport(namespace, conf)
    announcements = _announcements(namespace, conf) if chooses else None
    if announcements is None:
        return parts_of(conf, transport, serving=False)
    from compute_agent.scheduler.bus.running_scheduler import ClaimsOfSchedulers

    recent_claims = ClaimsOfSchedulers(conf)
    return parts_of(conf, transport, announcements, serving=False, recent_claims=recent_claims)


def _announcements(namespace: argparse.Namespace, conf: cfg.ConfigOpts) -> Announcements | None:
    """Return the announcements a running scheduler has; `None`, with a note, without one."""
    from compute_agent.scheduler.bus import running_scheduler
    from compute_agent.scheduler.errors import NoSchedulerAnswers

    try:
        return running_scheduler.announcements(conf)
    except (errors.InvalidConfiguration, NoSchedulerAnswers) as error:
        print(
            f"compute-scheduler {namespace.command}: It is unknown which hosts are alive; only "
            f"those that placement marks as disabled are left out. {error}",
            file=sys.stderr,
        )
        return None


def claim_document(claim: Claim, client: PlacementClient) -> dict[str, Any]:
    """Return a claim as `compute-scheduler` prints it, with the names of its providers."""
    names = client.provider_names(claim.allocations)
    return {
        "consumer": claim.instance,
        "host": claim.host,
        "root_provider": claim.root,
        "allocations": {
            provider: {"name": names.get(provider, provider), "resources": dict(resources)}
            for provider, resources in claim.allocations.items()
        },
        "mappings": {suffix: list(uuids) for suffix, uuids in claim.mappings.items()},
    }
