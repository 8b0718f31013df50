"""Request specifications for tests, short to write."""

from __future__ import annotations

from typing import Any

from compute_agent.request import flavor
from compute_agent.request.candidate_request import CandidateRequest
from compute_agent.request.spec import Flavor, Image, RequestSpec


def spec(
    extra_specs: dict[str, str] | None = None,
    *,
    vcpus: int = 2,
    memory_mb: int = 512,
    root_gb: int = 10,
    properties: dict[str, str] | None = None,
    flavor_fields: dict[str, Any] | None = None,
    **fields: Any,
) -> RequestSpec:
    """A specification of a small instance with what a test cares about."""
    return RequestSpec(
        project_id="project",
        user_id="user",
        flavor=Flavor(
            vcpus=vcpus,
            memory_mb=memory_mb,
            root_gb=root_gb,
            extra_specs=extra_specs or {},
            **(flavor_fields or {}),
        ),
        image=Image(id="image", properties=properties or {}),
        **fields,
    )


def request_of(request_spec: RequestSpec, **options: Any) -> CandidateRequest:
    """The request a specification becomes, without a limit."""
    return flavor.request_of(request_spec, flavor.RequestOptions(limit=None, **options))


def query_of(request_spec: RequestSpec, **options: Any) -> str:
    """The query string of that request."""
    return request_of(request_spec, **options).query()
