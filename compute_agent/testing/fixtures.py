"""An agent and a scheduler in the process of a test: all real parts, with a fake driver."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import fixtures

from compute_agent.agent import assembly
from compute_agent.agent.assembly import AgentParts
from compute_agent.agent.availability import Availability
from compute_agent.agent.commands import AgentCommands
from compute_agent.placement.transports.keystone import KeystoneTransport
from compute_agent.placement.transports.transport import Transport
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.life_cycle.life_cycle import LifeCycle
from compute_agent.testing.configuration import Options, configuration
from compute_agent.testing.transports import RecordingTransport
from compute_agent.tracker.pass_attempt import PassResult
from compute_agent.tracker.pass_schedule import PassSchedule
from compute_agent.tracker.resource_tracker import ResourceTracker


class AgentFixture(fixtures.Fixture):
    """One agent with one host. It reports when the test says so, never by itself.

    :param endpoint: the URL of a placement without Keystone, as fixtures of placement_server have
        it; or a transport of the test.
    :param host: the name of the host.
    :param driver: a driver, as `[DEFAULT]compute_driver` names it. The default makes up a machine
        of `[fake]`: NUMA cells, GPUs and network cards.
    :param options: values of other options, by group and name.

    :ivar node_uuid: the uuid of the host's root provider.
    :ivar commands: what the bus and the local socket of an agent can call, as `instance_claim`.
    :ivar driver: the driver itself, whose machine and guests the test may change.
    :ivar transport: the requests that were made, and failures instead of them.
    """

    parts: AgentParts
    commands: AgentCommands
    driver: Any
    node_uuid: str

    def __init__(
        self,
        endpoint: str | Transport,
        host: str = "host-1",
        driver: str = "fake.FakeNumaDriver",
        options: Options | None = None,
    ) -> None:
        super().__init__()
        self.host = host
        self._driver = driver
        self._options = options or {}
        self.transport = _recording(endpoint)

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        defaults: Options = {
            "DEFAULT": {
                "host": self.host,
                "state_path": directory / "state",
                "compute_driver": self._driver,
                "periodic_fuzzy_delay": 0,
            },
            # an agent of a test does not read what is configured on the machine it runs on
            "compute": {"provider_config_location": directory / "none"},
        }
        self._conf = configuration(directory, defaults, self._options)
        self.parts = assembly.build(self._conf, transport=self.transport)
        self.addCleanup(self.parts.close)
        self.driver = self.parts.driver
        nodes = self.parts.setup.nodes()
        if len(nodes) != 1:
            raise ValueError(
                f"Driver {self._driver} has the nodes {sorted(nodes)}: expected exactly one."
            )
        [(self._node, self.node_uuid)] = nodes.items()
        self._tracker = self._new_tracker()

    def report(self) -> PassResult:
        """Run one pass: look at the host, and make placement equal to it.

        The first pass is that of a start, which may reshape; `completed` of the result says
        whether all of it was done.
        """
        return self._tracker.run_pass(self._node)

    def restart(self) -> None:
        """Forget what is known of placement and of earlier passes, as a new process would."""
        self.parts.report.drop_cache()
        self._tracker = self._new_tracker()

    @property
    def tracker(self) -> ResourceTracker:
        """What runs the passes."""
        return self._tracker

    def _new_tracker(self) -> ResourceTracker:
        parts, conf = self.parts, self._conf
        tracker = parts.tracker(wait=lambda _seconds: False)
        tracker.add_node(self._node, self.node_uuid)
        availability = Availability(
            parts.ledger,
            parts.report,
            parts.board,
            default_enabled=lambda: True,
            roots=lambda: [self.node_uuid],
            threshold=lambda: conf.compute.consecutive_build_service_disable_threshold,
        )
        self.commands = AgentCommands(
            conf,
            parts,
            tracker,
            PassSchedule(time.monotonic),
            lambda: None,
            book=parts.claims(tracker),
            availability=availability,
        )
        return tracker


class SchedulerFixture(fixtures.Fixture):
    """All that is done with instances, from claim to delete.

    :param endpoint: as that of `AgentFixture`.
    :param options: values of options, by group and name.

    :ivar life_cycle: the steps.
    :ivar transport: the requests that were made, and failures instead of them.
    """

    life_cycle: LifeCycle

    def __init__(self, endpoint: str | Transport, options: Options | None = None) -> None:
        super().__init__()
        self._options = options or {}
        self.transport = _recording(endpoint)

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        # the journal of unfinished claims is the test's own
        defaults = {"DEFAULT": {"state_path": directory / "state"}}
        conf = configuration(directory, defaults, self._options)
        self.life_cycle = LifeCycle(parts_of(conf, self.transport, None, serving=False))


def _recording(endpoint: str | Transport) -> RecordingTransport:
    behind = KeystoneTransport.to_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    return RecordingTransport(behind)
