"""A scheduler in the process of a test."""

from __future__ import annotations

from pathlib import Path

import fixtures

from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Transport
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
from compute_agent.testing.configuration import Options, configuration
from compute_agent.testing.transports import RecordingTransport


class SchedulerFixture(fixtures.Fixture):
    """All that is done with instances, from claim to delete.

    :param endpoint: the URL of a placement without Keystone, as fixtures of placement_server have
        it; or a transport of the test.
    :param options: values of options, by group and name.

    :ivar life_cycle: the steps.
    :ivar transport: the requests that were made, and failures instead of them.
    """

    life_cycle: LifeCycle

    def __init__(self, endpoint: str | Transport, options: Options | None = None) -> None:
        super().__init__()
        self._options = options or {}
        behind = KeystoneTransport.to_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self.transport = RecordingTransport(behind)

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        # the journal of unfinished claims is the test's own
        defaults = {"DEFAULT": {"state_path": directory / "state"}}
        conf = configuration(directory, defaults, self._options)
        self.life_cycle = LifeCycle(parts_of(conf, self.transport, None, serving=False))
