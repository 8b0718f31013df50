"""A short burst of claims on a fleet whose parts are killed; a long one is run by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fixtures.rabbitmq import RabbitMq
from tests.integration.burst.burst import reckon, run
from tests.integration.burst.fleet import Fleet

pytestmark = pytest.mark.long


@pytest.mark.timeout(900)
def test_a_full_fleet_holds_what_was_answered_and_refuses_what_does_not_fit(
    tmp_path: Path, postgresql_url: str, rabbitmq: RabbitMq
) -> None:
    with Fleet(tmp_path, postgresql_url, rabbitmq).running(hosts=4, schedulers=2) as fleet:
        outcome, trouble = run(fleet, 60, at_once=8, seed=1)
        wrong = reckon(fleet, outcome)
    sys.stdout.write(f"{outcome}\n{'; '.join(trouble.happened)}\n")
    assert wrong == []
    assert outcome.placed
    assert len(trouble.happened) == len(trouble.schedule())
