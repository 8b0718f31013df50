"""`compute-agent diff A B` against a real placement."""

import json
from collections.abc import Callable

import pytest

from tests.fixtures.plain_trees import make_provider
from tests.functional.agent.processes import AgentProcess, PlacementProcess

pytestmark = pytest.mark.waiting

NewAgent = Callable[..., AgentProcess]


def host(placement: PlacementProcess, name: str, vcpus: int, *traits: str) -> str:
    """A host with one child, as placement has it."""
    root = make_provider(placement.send, name)
    make_provider(placement.send, f"{name}_NUMA0", {"VCPU": vcpus}, traits, parent=root)
    return root


def test_0_for_equal_hosts_by_name_and_by_uuid(
    placement: PlacementProcess, new_agent: NewAgent, node: str
) -> None:
    agent = new_agent(placement.url)
    one, two = f"{node}-one", f"{node}-two"
    host(placement, one, 4, "HW_CPU_X86_AVX2")
    uuid = host(placement, two, 4, "HW_CPU_X86_AVX2")
    done = agent.run("diff", one, uuid)
    assert done.returncode == 0, done.stderr
    assert "equal" in done.stdout
    assert two in done.stdout


def test_6_for_hosts_that_differ_and_what_differs_is_told(
    placement: PlacementProcess, new_agent: NewAgent, node: str
) -> None:
    agent = new_agent(placement.url)
    one, two = f"{node}-one", f"{node}-two"
    host(placement, one, 4)
    host(placement, two, 8, "HW_CPU_X86_AVX2")
    done = agent.run("diff", one, two)
    assert done.returncode == 6, done.stderr
    assert "VCPU total: 4 < > 8" in done.stdout
    assert "traits only > has: HW_CPU_X86_AVX2" in done.stdout
    document = json.loads(agent.run("diff", "--json", one, two).stdout)
    assert document["first"]["name"] == one
    assert {"provider": "_NUMA0", "aspect": "VCPU total", "first": 4, "second": 8} in document[
        "differences"
    ]


def test_4_for_a_host_that_placement_does_not_have(
    placement: PlacementProcess, new_agent: NewAgent, node: str
) -> None:
    agent = new_agent(placement.url)
    host(placement, node, 4)
    done = agent.run("diff", node, "nowhere")
    assert done.returncode == 4
    assert "nowhere" in done.stderr
    child = agent.run("diff", node, f"{node}_NUMA0")
    assert child.returncode == 4
    assert "not a host" in child.stderr


def test_3_when_placement_cannot_be_reached_and_127_for_bad_arguments(new_agent: NewAgent) -> None:
    agent = new_agent("http://127.0.0.1:1")
    assert agent.run("diff", "a", "b").returncode == 3
    assert agent.run("diff", "a").returncode == 127
