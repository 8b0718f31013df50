"""Requests of all kinds, right and wrong ones, each sent to the application and told to the model.

A refused one must leave everything as it was.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.api_model.allocation_rules import AllocationRules
from tests.property.api_model.provider_rules import ProviderRules


class Machine(ProviderRules, AllocationRules):
    """All of them, in any order."""


def run(machine: type[Machine], examples: int) -> None:
    """Let a machine send this many sequences of requests."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
