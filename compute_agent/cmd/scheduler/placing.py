"""The commands about hosts for a request: claim, release, select and explain."""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from typing import Final

from compute_agent.cmd.scheduler import request_options
from compute_agent.cmd.scheduler.configured import assemble, claim_document, read_json
from compute_agent.cmd.scheduler.views import print_claim, print_explanation
from compute_agent.programs.exit_status import Exit
from compute_agent.programs.printable import first_of
from compute_agent.request import spec_reader
from compute_agent.request.extra_specs import uuid_text
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle

_SHOWN_HOSTS: Final = 10


def claim(namespace: argparse.Namespace) -> None:
    """Claim resources for a consumer."""
    spec = request_options.spec_of(namespace)
    consumer = (
        uuid_text("--consumer", namespace.consumer) if namespace.consumer else str(uuid.uuid4())
    )
    parts = assemble(namespace, chooses=True)
    document = claim_document(LifeCycle(parts).claim(spec, consumer), parts.client)
    if namespace.json:
        print(json.dumps(document, indent=2))
    else:
        print_claim(document)


def release(namespace: argparse.Namespace) -> int:
    """Release all that a consumer holds."""
    consumer = uuid_text("CONSUMER", namespace.consumer)
    was_released = assemble(namespace).client.release(consumer)
    if namespace.json:
        print(json.dumps({"consumer": consumer, "released": was_released}))
    elif was_released:
        print(f"Released everything that consumer {consumer} held.")
    if not was_released:
        print(
            f"compute-scheduler release: consumer {consumer} holds nothing: it was released "
            "before, or never claimed.",
            file=sys.stderr,
        )
        return Exit.FAILED
    return Exit.FINE


def select(namespace: argparse.Namespace) -> None:
    """Claim for a request specification."""
    body = read_json(namespace.file)
    instances = spec_reader.instances_of(body)
    spec = spec_reader.read_spec(body)
    scheduler = assemble(namespace, chooses=True).scheduler
    selections = scheduler.select_destinations(spec, instances, alternates=namespace.alternates)
    print(json.dumps([[host.as_dict() for host in hosts] for hosts in selections], indent=2))


def explain(namespace: argparse.Namespace) -> int:
    """Show where a request fits, or why it does not."""
    spec = request_options.given_spec(namespace)
    explanation = assemble(namespace, chooses=True).explainer.explain(spec)
    hosts, causes = explanation.hosts, explanation.causes
    if namespace.json:
        print(json.dumps(explanation.as_dict(), indent=2))
    elif hosts:
        names = [host.name for host in hosts]
        print(f"It fits on {first_of(names, _SHOWN_HOSTS)}. Nothing was claimed.")
        for line in (f"On {names[0]}:", *explanation.plan) if explanation.plan else ():
            print(line)
        print_explanation(causes)
    else:
        print(f"No valid host. {causes.sentence()}")
        print_explanation(causes)
    return Exit.FINE if hosts else Exit.FAILED
