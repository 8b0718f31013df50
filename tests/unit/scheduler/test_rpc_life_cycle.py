"""Calls of the life cycle with arguments that are something else."""

from __future__ import annotations

from typing import Any

import pytest

from compute_agent.request.errors import InvalidRequest
from compute_agent.scheduler.bus.calls import oslo_messaging
from compute_agent.scheduler.bus.rpc_life_cycle import LifeCycleEndpoint
from compute_agent.scheduler.outcomes import Observer

INSTANCE = "0d9e7c3a-5a0b-4a55-b1a3-0c2f7d1f8a11"
SPEC = {"project_id": "p", "user_id": "u", "flavor": {"vcpus": 1, "memory_mb": 1, "root_gb": 0}}


def untouched() -> Any:
    class Parts:
        client = None

    return Parts()


@pytest.mark.parametrize(
    ("method", "arguments", "field"),
    [
        ("reschedule", {"spec_obj": SPEC, "failed_hosts": "host-1"}, "failed_hosts"),
        ("reschedule", {"spec_obj": SPEC, "failed_hosts": 5}, "failed_hosts"),
        ("delete_instance", {"migration_uuids": 5}, "migration_uuids"),
        ("begin_move", {"kind": "live", "spec_obj": SPEC, "mappings": [1]}, "mappings"),
    ],
)
def test_an_argument_of_another_type_is_named(
    method: str, arguments: dict[str, Any], field: str
) -> None:
    endpoint = LifeCycleEndpoint(untouched, Observer(), "4.5")
    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        getattr(endpoint, method)({}, instance_uuid=INSTANCE, **arguments)
    kind, error, _ = caught.value.exc_info
    assert kind is InvalidRequest
    assert field in str(error)
