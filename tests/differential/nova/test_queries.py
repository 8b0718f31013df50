"""The query for a request is nova's, but for the differences that are listed here with a reason.

`NOVA_EXAMPLES` says how many requests are drawn.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import example, given

from compute_agent.conf import new_config
from compute_agent.errors import ComputeAgentError
from compute_agent.placement.transports.in_process import InProcessTransport
from compute_agent.placement.transports.transport import Request, Response
from compute_agent.scheduler import assembly
from compute_agent.scheduler.bus.calls import spec_of
from tests.differential.nova.drawn_requests import (
    AGGREGATES,
    HOST,
    REQUESTS,
    document,
    image,
    spec,
)
from tests.differential.nova.nova_process import SETTINGS, Nova
from tests.functional.either_placement import ours

OPTIONS: Final = """\
[filter_scheduler]
pci_in_placement = true
[scheduler]
limit_tenants_to_placement_aggregate = true
enable_isolated_aggregate_filtering = true
query_placement_for_image_type_support = true
image_metadata_prefilter = true
[pci]
alias = {"name": "gpu", "resource_class": "CUSTOM_GPU"}
alias = {"name": "nic", "vendor_id": "8086", "product_id": "1572", "traits": "CUSTOM_A"}
"""
Query = dict[str, frozenset[str]]


class Recorder:
    """A transport that keeps the queries for candidates."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.queries: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def send(self, request: Request) -> Response:
        if request.path.startswith("/allocation_candidates"):
            self.queries.append(urlsplit(request.path).query)
        return self._inner.send(request)


class OurScheduler:
    """Our scheduler before a placement without hosts."""

    def __init__(self, directory: Path, options: str) -> None:
        self._recorder = Recorder(InProcessTransport(ours(directory)))
        file = directory / "scheduler.conf"
        aggregates = directory / "aggregates.yaml"
        aggregates.write_text(json.dumps(AGGREGATES))
        file.write_text(
            f"[compute_scheduler]\njournal_path = {directory}/journal\n"
            f"explain_no_valid_host = false\naggregate_source = {aggregates}\n"
            f"[compute_agent]\nuse_placement_extensions = never\n{options}"
        )
        name, identity = HOST
        new_host = {"name": name, "uuid": identity}
        self._recorder.send(Request("POST", "/resource_providers", (1, 20), new_host))
        conf = new_config([f"--config-file={file}"], default_config_dirs=[])
        self._scheduler = assembly.parts_of(conf, self._recorder).scheduler

    def query(self, body: Mapping[str, Any]) -> list[tuple[str, str]] | str:
        """Return the parameters of the query, or why there is none.

        :param body: a document of ours, or a conductor's object.
        """
        self._recorder.queries.clear()
        try:
            self._scheduler.select_destinations(spec_of(body), [str(uuid.uuid4())])
        except ComputeAgentError as error:
            if not self._recorder.queries:
                return str(error)
        return parse_qsl(self._recorder.queries[0])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nova, OurScheduler]]:
    directory = tmp_path_factory.mktemp("queries")
    database = f"[api_database]\nconnection = sqlite:///{directory}/api.db\n"
    with closing(Nova(directory, database + OPTIONS)) as nova:
        for aggregate in AGGREGATES:
            nova("aggregate", **aggregate)
        yield nova, OurScheduler(directory, OPTIONS)


def comparable(query: list[tuple[str, str]]) -> Query:
    """Return the parameters as sets, without the differences that are meant.

    - `limit` is an option of each.
    - Traits of the host are required of the root, which in a nested tree may give no resources.
    - `!HW_NUMA_ROOT` keeps a flat request to flat hosts.
    - The disk of a host that is named is in a group of its own, since a pool is not in its tree.
    - The suffix of a device's group is a random uuid in nova, and made from its name here.
    - `group_policy` says nothing where there is one group with a suffix, or none, and
      `same_subtree` nothing of one group.
    """
    sets: dict[str, frozenset[str]] = {}
    for name, value in query:
        if name.startswith(("member_of", "same_subtree")):
            value = ";".join(sorted(value.split(",")))
        is_alone = name == "same_subtree" and ";" not in value
        if name not in ("limit", "group_policy") and not is_alone:
            sets[name] = sets.get(name, frozenset()) | frozenset(value.split(","))
    for name in ("resources", "required"):
        sets[name] = sets.get(name, frozenset()) | sets.pop(f"{name}_DISK", frozenset())
    of_host = sets.pop("required", frozenset()) | sets.pop("root_required", frozenset())
    sets["root_required"] = of_host - {"!HW_NUMA_ROOT"}
    devices = Counter(
        (sets.pop(name), sets.pop(f"required{name.removeprefix('resources')}", frozenset()))
        for name in [name for name in sets if re.match(r"resources[0-9a-f]{8}-", name)]
    )
    sets["devices"] = frozenset(map(str, devices.items()))
    return {name: values for name, values in sets.items() if values}


def _no_amounts(request: dict[str, Any]) -> bool:
    specs = request["extra_specs"]
    return any(specs.get(f"resources:{name}") == "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB"))


def _odd_cores(request: dict[str, Any]) -> bool:
    specs, properties = request["extra_specs"], request["properties"]
    threads = specs.get("hw:cpu_thread_policy"), properties.get("hw_cpu_thread_policy")
    return "require" in threads and "mixed" in (
        specs.get("hw:cpu_policy"),
        properties.get("hw_cpu_policy"),
    )


def _second_node_alone(request: dict[str, Any]) -> bool:
    names = [name for name in request["extra_specs"] if re.match(r"hw:numa_(cpus|mem)\.", name)]
    return bool(names) and all(name.endswith(".1") for name in names)


Rule = Callable[[dict[str, Any]], bool]
OURS_REFUSES: Final[Mapping[str, Rule]] = {
    # nova asks placement for nothing at all, which answers 400
    "no amount of any class": _no_amounts,
    # nova leaves it to the host, which has no whole cores that are an odd number of CPUs
    "whole cores for an odd number of CPUs": _odd_cores,
    # nova looks at no node after the first that is not described, and gives equal shares
    "shares of the second node alone": _second_node_alone,
    # nova asks without the zone
    "a zone of no aggregate": lambda request: (
        request["places"].get("availability_zone") == "nowhere"
    ),
}
"""Reasons for which we refuse by name what nova does not, by the request."""

NOVA_REFUSES: Final[Mapping[str, Rule]] = {
    # the service of a node is known from announcements only; the node counts
    "a node of another host": lambda request: bool(
        request["places"].get("force_nodes") and request["places"].get("force_hosts") == ["gone"]
    ),
}
"""Reasons for which nova refuses what we ask for."""

DIFFERENCES: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def printed_differences() -> Iterator[None]:
    """Print the number of requests after the last of them."""
    yield
    sys.__stdout__.write(f"\nqueries beside nova's: {dict(DIFFERENCES)}\n")


@SETTINGS
@given(request=REQUESTS)
@example(
    request={
        "extra_specs": {
            "hw:cpu_policy": "mixed",
            "hw:cpu_dedicated_mask": "^0",
            "hw:cpu_thread_policy": "require",
        },
        "properties": {},
        "disk_format": "raw",
        "is_bfv": False,
        "ports": [],
        "places": {},
    }
)
def test_the_query_is_novas(both: tuple[Nova, OurScheduler], request: dict[str, Any]) -> None:
    nova, ours_ = both
    extra_specs, properties = request["extra_specs"], request["properties"]
    request_spec = spec(
        extra_specs,
        image=image(request["disk_format"], **properties),
        is_bfv=request["is_bfv"],
        **request["places"],
    )
    theirs = nova("query", spec=request_spec, ports=request["ports"], host=HOST)
    body = document(request_spec) | {"requested_networks": request["ports"]}
    for own in (ours_.query(body), ours_.query(theirs["wire"] or body)):
        if isinstance(own, str):
            is_listed = any(rule(request) for rule in OURS_REFUSES.values())
            assert "refused" in theirs or is_listed, own
            DIFFERENCES["both refuse" if "refused" in theirs else "ours refuses"] += 1
        elif "refused" in theirs:
            assert any(rule(request) for rule in NOVA_REFUSES.values()), theirs
            DIFFERENCES["nova refuses"] += 1
        else:
            assert comparable(own) == comparable(theirs["query"])
            DIFFERENCES["equal"] += 1
