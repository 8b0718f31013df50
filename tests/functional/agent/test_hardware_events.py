"""A change that the kernel tells of is looked at at once, by the real process on this machine."""

from pathlib import Path

import pytest

from compute_agent.discovery.uevents import kernel_socket
from tests.functional.agent.processes import eventually, running, vcpus

pytestmark = pytest.mark.waiting

CPU = Path("/sys/devices/system/cpu/cpu0/uevent")


@pytest.fixture
def kernel_that_tells():
    """The file that makes the kernel tell of a CPU."""
    try:
        with kernel_socket() as heard:
            heard.settimeout(5)
            CPU.write_text("change")
            heard.recv(65536)
    except OSError as error:
        pytest.skip(f"no uevents here: {error}")
    return CPU


def test_an_event_of_the_kernel_makes_a_pass(placement, new_agent, node, kernel_that_tells):
    agent = new_agent(
        placement.url,
        DEFAULT={
            "compute_driver": "host.HostDriver",
            "host": node,
            "instances_path": "/tmp",
            "update_resources_interval": -1,
        },
    )
    with running(agent):
        before = agent.status()["totals"]["passes"]["completed"]

        def told_and_looked_at() -> bool:
            kernel_that_tells.write_text("change")
            return agent.status()["totals"]["passes"]["completed"] > before

        eventually(told_and_looked_at, "a pass without a period")
        assert agent.stop() == 0
        assert "Traceback" not in agent.logged()


def test_a_change_during_the_first_pass_makes_another(placement, new_agent, node):
    agent = new_agent(placement.url, DEFAULT={"host": node, "update_resources_interval": -1})
    agent.script(nodes=[node], grows=True)
    with running(agent):
        eventually(lambda: vcpus(placement, node) == 9, "the CPU that was added meanwhile")
        assert agent.stop() == 0
