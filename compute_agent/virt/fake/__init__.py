"""In-memory drivers, complete enough to test an agent, a scheduler and what is built on them."""

from compute_agent.virt.fake.driver import FakeDriver, SmallFakeDriver
from compute_agent.virt.fake.topology_drivers import (
    FakeDriverWithPciResources,
    FakeManyNodesDriver,
    FakeMisbehavingDriver,
    FakeNumaDriver,
    FakeReshapeDriver,
)

__all__ = [
    "FakeDriver",
    "FakeDriverWithPciResources",
    "FakeManyNodesDriver",
    "FakeMisbehavingDriver",
    "FakeNumaDriver",
    "FakeReshapeDriver",
    "SmallFakeDriver",
]
