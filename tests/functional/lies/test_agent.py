"""The real agent before a placement that lies: alive, says what is wrong, and converges."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.agent.processes import AgentProcess, eventually
from tests.functional.lies.elsewhere import Elsewhere
from tests.functional.lies.menu import A_FEW, BOMBS, MENU, silence

pytestmark = pytest.mark.waiting

MOST_MIB = 256


@dataclass(frozen=True)
class DeceivedAgent:
    """An agent and the proxy that lies to nobody else."""

    agent: AgentProcess
    proxy: LyingProxy


@pytest.fixture(scope="module")
def new_agent(
    tmp_path_factory: pytest.TempPathFactory, placement_url: str
) -> Iterator[Callable[[int], DeceivedAgent]]:
    """Makes agents with so many seconds for an answer; all are killed in the end."""
    made: list[DeceivedAgent] = []

    def make(seconds: int) -> DeceivedAgent:
        node = f"host-{uuid.uuid4().hex[:8]}"
        proxy = LyingProxy(placement_url)
        directory = tmp_path_factory.mktemp(node)
        agent = AgentProcess(directory, proxy.url, placement={"timeout": seconds})
        agent.script(nodes=[node])
        made.append(DeceivedAgent(agent, proxy))
        return made[-1]

    yield make
    for deceived in made:
        deceived.agent.cleanup()
        deceived.proxy.close()


@pytest.fixture(scope="module")
def running(new_agent: Callable[[int], DeceivedAgent]) -> Callable[[int], DeceivedAgent]:
    """The agent that runs with so many seconds for an answer."""

    @cache
    def started(seconds: int) -> DeceivedAgent:
        deceived = new_agent(seconds)
        deceived.agent.start()
        deceived.agent.started()
        return deceived

    return started


def forget_peak(agent: AgentProcess) -> None:
    assert agent.process is not None
    Path(f"/proc/{agent.process.pid}/clear_refs").write_text("5")


def peak_mib(agent: AgentProcess) -> int:
    """The most memory that the agent has had since it was forgotten."""
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.parametrize("name", MENU)
def test_a_placement_that_lies_in_a_period_is_told_and_converged_with(
    running: Callable[[int], DeceivedAgent], elsewhere: Elsewhere, name: str
) -> None:
    lie = MENU[name]
    deceived = running(lie.seconds)
    agent, proxy = deceived.agent, deceived.proxy
    before = len(agent.logged())
    forget_peak(agent)
    proxy.lie(lie.tell, elsewhere.url)
    eventually(lambda: agent.node()["trouble"], "the trouble")
    proxy.honest()
    eventually(lambda: agent.node()["trouble"] is None, "the recovery")
    told = agent.logged()[before:]
    assert re.search(lie.words, told), told
    assert "Traceback" not in told
    if name in BOMBS:
        assert peak_mib(agent) < MOST_MIB


@pytest.mark.parametrize("name", A_FEW)
def test_a_placement_that_lies_at_a_start_is_waited_for_or_to_blame(
    new_agent: Callable[[int], DeceivedAgent], elsewhere: Elsewhere, name: str
) -> None:
    lie = MENU[name]
    deceived = new_agent(lie.seconds)
    agent, proxy = deceived.agent, deceived.proxy
    proxy.lie(lie.tell, elsewhere.url)
    agent.start()
    if lie.exit_status is None:
        eventually(lambda: re.search(lie.words, agent.logged()), f"{lie.words} in the log")
        if name in BOMBS:
            assert peak_mib(agent) < MOST_MIB
    else:
        assert agent.ended() == lie.exit_status
        assert re.search(lie.words, agent.logged())
        proxy.honest()
        agent.start()
    proxy.honest()
    agent.started()
    assert "Traceback" not in agent.logged()
    agent.cleanup()


def test_a_request_without_an_answer_is_shown_as_a_call_that_hangs(
    new_agent: Callable[[int], DeceivedAgent],
) -> None:
    deceived = new_agent(60)
    deceived.agent.start()
    deceived.agent.started()
    deceived.proxy.lie(silence, "")

    def hung_calls() -> list[str]:
        status = deceived.agent.status() or {}
        return [f"{call['source']}: {call['call']}" for call in status.get("hung_calls", ())]

    [call] = eventually(hung_calls, "a call that hangs")
    assert re.match(r"placement: GET /\w+", call)
    shown = deceived.agent.run("status").stdout
    assert re.search(r"hangs +placement: GET /\w+.*, since ", shown)
    deceived.agent.cleanup()


def test_a_long_retry_after_is_capped_at_the_period_and_the_cap_is_logged(
    running: Callable[[int], DeceivedAgent], elsewhere: Elsewhere
) -> None:
    deceived = running(30)
    agent, proxy = deceived.agent, deceived.proxy
    before = len(agent.logged())
    proxy.lie(MENU["Retry-After: a day"].tell, elsewhere.url)
    eventually(lambda: (agent.node()["trouble"] or {"seen": 0})["seen"] >= 3, "three tries")
    proxy.honest()
    eventually(lambda: agent.node()["trouble"] is None, "the recovery")
    told = [line for line in agent.logged()[before:].splitlines() if "Retry-After: 86400" in line]
    assert len(told) == 1
    assert "WARNING" in told[0]
    assert "sent after 1 s, the longest wait" in told[0]
