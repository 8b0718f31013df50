"""The command `compute-scheduler explain`: where a request fits, or why it does not."""

from __future__ import annotations

import argparse
import json

from compute_agent.cmd.scheduler import claim_options
from compute_agent.programs.exit_status import Exit

SHOWN_HOSTS = 10


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `compute-scheduler`."""
    explain = commands.add_parser(
        "explain",
        help="show where a request fits, or why it does not",
        description="Searches as claim does, and claims nothing. Give the request with the options "
        "of claim, or with --spec.",
    )
    claim_options.add_spec_options(explain)
    explain.add_argument("--json", action="store_true", help="one JSON document on stdout")
    explain.set_defaults(function=_explain)


def _explain(namespace: argparse.Namespace) -> int:
    from compute_agent.cmd.scheduler.configured import assemble
    from compute_agent.cmd.scheduler.explanation_view import print_explanation
    from compute_agent.cmd.scheduler.request_options import given_spec

    spec = given_spec(namespace)
    explanation = assemble(namespace, chooses=True).explainer.explain(spec)
    hosts, causes = explanation.hosts, explanation.causes
    if namespace.json:
        print(json.dumps(explanation.as_dict(), indent=2))
    elif hosts:
        names = [host.name for host in hosts[:SHOWN_HOSTS]]
        more = f" and {len(hosts) - len(names)} more" if len(hosts) > len(names) else ""
        print(f"It fits on {', '.join(names)}{more}. Nothing was claimed.")
        for line in (f"On {names[0]}:", *explanation.plan) if explanation.plan else ():
            print(line)
        print_explanation(causes)
    else:
        print(f"No valid host. {causes.sentence()}")
        print_explanation(causes)
    return Exit.FINE if hosts else Exit.FAILED
