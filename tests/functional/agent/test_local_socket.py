"""The local socket of a running agent, and messages that nobody should send."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from compute_agent import errors
from tests.functional.agent.processes import AgentProcess, running

pytestmark = pytest.mark.waiting

UUID = "00000000-0000-4000-8000-000000000001"
NOT_TEXT: list[Any] = [5, -1.5, True, [], ["a"], {}, {"a": 1}]
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    *(("status", {"node": value}) for value in NOT_TEXT if value),
    *(("report", {"node": value}) for value in NOT_TEXT if value),
    *(("drop_claim", {"instance": value}) for value in NOT_TEXT),
    *(("drop_claim", {"instance": UUID, "error": value}) for value in NOT_TEXT),
    *(("drop_claim", {"instance": UUID, "error": "e", "image": value}) for value in NOT_TEXT),
    *(("set_host_enabled", {"enabled": value}) for value in [5, [], {}, "perhaps"]),
    *(("set_host_enabled", {"enabled": False, "reason": value}) for value in NOT_TEXT),
    *(("clear_fault", {"provider": value}) for value in NOT_TEXT),
    *(("instance_claim", {"spec": value}) for value in [*NOT_TEXT, "text", None]),
    *(
        ("instance_claim", {"spec": {"instance_uuid": UUID}, "allocations": value})
        for value in [5, "text", ["a"], {"a": 1}, {UUID: {"resources": {"VCPU": "1"}}}]
    ),
    ("instance_claim", {"spec": {"instance_uuid": UUID}, "mappings": [1]}),
]


def test_arguments_of_wrong_types_are_refused_by_name_and_nothing_of_them_is_kept(
    placement: Any, new_agent: Any
) -> None:
    agent: AgentProcess = new_agent(placement.url)
    with running(agent):
        before = agent.status()
        for command, arguments in MESSAGES:
            with pytest.raises(errors.ComputeAgentError) as refused:
                agent.ask(command, **arguments)
            assert "unexpectedly" not in str(refused.value), (command, arguments)
        after = agent.status()
        assert before is not None
        assert after is not None
        assert after["nodes"][0]["enabled"] is before["nodes"][0]["enabled"] is True
        assert "Traceback" not in agent.logged()
        assert agent.stop() == 0
    # whatever it kept would be read here
    with running(agent):
        assert agent.stop() == 0


def test_messages_that_are_cut_off_or_too_long_do_nothing(placement: Any, new_agent: Any) -> None:
    agent: AgentProcess = new_agent(placement.url)
    request = json.dumps({"command": "set_host_enabled", "enabled": False, "reason": "r"}).encode()
    too_long = json.dumps(
        {"command": "set_host_enabled", "enabled": False, "reason": "r" * 70_000}
    ).encode()
    with running(agent):
        for sent in (*(request[:length] for length in range(1, len(request), 7)), too_long):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(30)
                client.connect(str(agent.state / "status.sock"))
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                assert b"not understood" in client.makefile("rb").readline(), sent[:100]
        assert agent.node()["enabled"] is True
        assert agent.stop() == 0
