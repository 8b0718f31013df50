"""Placement for the tests of other projects: in process or as a process, and failures of it."""

from placement_server.testing.faults import Faults
from placement_server.testing.fixture import PlacementFixture
from placement_server.testing.process import PlacementProcessFixture

__all__ = ["Faults", "PlacementFixture", "PlacementProcessFixture"]
