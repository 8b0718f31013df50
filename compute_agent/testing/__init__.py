"""Agents and schedulers for the tests of other projects, and requests that fail on demand."""

from importlib.util import find_spec

from compute_agent.programs.extra_installation import install_command

if find_spec("fixtures") is None:
    raise ImportError(
        "compute_agent.testing needs fixtures, which this installation of compute-agent does not "
        f"have. Install it with: {install_command('testing')}"
    )

from compute_agent.testing.fixtures import AgentFixture, SchedulerFixture
from compute_agent.testing.transports import Exchange, RecordingTransport

__all__ = ["AgentFixture", "Exchange", "RecordingTransport", "SchedulerFixture"]
