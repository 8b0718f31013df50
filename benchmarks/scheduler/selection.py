"""CPU of a scheduler for each host that placement offers.

A scheduler as configuration makes it, in this process, with the answers that a placement gave once
to its questions: all that is spent is the scheduler's own. Beside it the floors, which are to parse
the same answer, with and without checking it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.parts.worlds import uuid_of
from compute_agent import conf as agent_conf
from compute_agent.daemon import garbage_collection
from compute_agent.placement import response_schemas
from compute_agent.placement.transports.transport import Request, Response, make_response
from compute_agent.request.spec_reader import read_spec
from compute_agent.scheduler.assembly import parts_of
from compute_agent.scheduler.fleet.announcements import Announcements

ROUNDS: Final = 5
TRAITS: Final = 60
"""Traits of a host: what an agent reports of a processor and of what its hypervisor can do."""

_SPEC: Final[dict[str, Any]] = {
    "project_id": "project",
    "user_id": "user",
    "flavor": {"vcpus": 1, "memory_mb": 512, "root_gb": 1, "extra_specs": {}},
    "image": {"id": "image", "properties": {}},
}


class Recorded:
    """A transport with one answer about candidates; every claim succeeds."""

    def __init__(self, hosts: int) -> None:
        roots = [uuid_of(f"selection-{number}") for number in range(hosts)]
        self.roots = roots
        self.candidates = orjson.dumps(_candidates(roots)).decode()
        providers = [
            {
                "uuid": root,
                "name": f"host-{number}",
                "generation": 3,
                "parent_provider_uuid": None,
                "root_provider_uuid": root,
                "links": [],
            }
            for number, root in enumerate(roots)
        ]
        self.providers = orjson.dumps({"resource_providers": providers}).decode()

    def send(self, request: Request) -> Response:
        """See `Transport.send`."""
        if request.path == "/":
            version = {"id": "v1.0", "min_version": "1.0", "max_version": "1.39", "status": ""}
            return self._answer(200, orjson.dumps({"versions": [version]}).decode())
        if request.path.startswith("/allocation_candidates"):
            return self._answer(200, self.candidates)
        if request.path.startswith("/resource_providers?"):
            is_nested = "HW_NUMA_ROOT" in request.path
            return self._answer(200, '{"resource_providers": []}' if is_nested else self.providers)
        if request.method == "PUT":
            return self._answer(204, "")
        raise AssertionError(f"{request} has no recorded answer")

    @staticmethod
    def _answer(status: int, text: str) -> Response:
        return make_response(status, [("Content-Type", "application/json")], text)


def _candidates(roots: list[str]) -> dict[str, Any]:
    amounts = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
    traits = ["COMPUTE_NODE", "OWNER_NOVA", *(f"HW_CPU_X86_FLAG{n:02}" for n in range(TRAITS - 2))]
    return {
        "allocation_requests": [
            {"allocations": {root: {"resources": amounts}}, "mappings": {"": [root]}}
            for root in roots
        ],
        "provider_summaries": {
            root: {
                "resources": {
                    "VCPU": {"capacity": 256, "used": number % 200},
                    "MEMORY_MB": {"capacity": 524_288, "used": 512 * (number % 200)},
                    "DISK_GB": {"capacity": 4000, "used": number % 200},
                },
                "traits": traits,
                "parent_provider_uuid": None,
                "root_provider_uuid": root,
            }
            for number, root in enumerate(roots)
        },
    }


def scheduler_of(transport: Recorded, directory: Path) -> Callable[[], None]:
    """Return one claim of a scheduler that has heard of all hosts."""
    announcements = Announcements()
    nodes = [{"uuid": root, "enabled": True, "instances": 3} for root in transport.roots]
    announcements.receive({"host": "hosts", "nodes": nodes, "service_version": 1})
    config = directory / "scheduler.conf"
    config.write_text(
        f"[DEFAULT]\nstate_path = {directory}\n"
        "[scheduler]\nmax_placement_results = 100000\n"
        f"[compute_scheduler]\njournal_path = {directory}/journal\n"
    )
    conf = agent_conf.new_config([f"--config-file={config}"])
    scheduler = parts_of(conf, transport, announcements).scheduler
    spec = read_spec(_SPEC)

    def claim() -> None:
        scheduler.select_destinations(spec, [str(uuid.uuid4())])

    return claim


def show(console: Console, quick: bool) -> bool:
    """Measure and print."""
    garbage_collection.keep_what_is_loaded()
    garbage_collection.expect_large_answers()
    table = Table(title=f"CPU of a scheduler per claim, the median of {ROUNDS}")
    for heading in ("hosts", "answer KiB", "parse ms", "and check ms", "claim ms", "µs per host"):
        table.add_column(heading, justify="right")
    for hosts in (500,) if quick else (500, 5000):
        transport = Recorded(hosts)
        text = transport.candidates
        with tempfile.TemporaryDirectory(prefix="selection-") as directory:
            claim = scheduler_of(transport, Path(directory))
            claim()
            took = _median(claim)
        parse_seconds = _median(lambda text=text: orjson.loads(text))  # type: ignore[misc]
        check_seconds = _median(
            lambda text=text: response_schemas.CANDIDATES.misfit(orjson.loads(text))  # type: ignore[misc]
        )
        table.add_row(
            f"{hosts:,}",
            f"{len(text) / 1024:,.0f}",
            f"{1000 * parse_seconds:.1f}",
            f"{1000 * check_seconds:.1f}",
            f"{1000 * took:.1f}",
            f"{1e6 * took / hosts:.1f}",
        )
    console.print(table)
    return True


def _median(work: Callable[[], object]) -> float:
    """Return the CPU seconds that some work takes, the median of several times."""
    seconds = []
    for _ in range(ROUNDS):
        before = time.process_time()
        work()
        seconds.append(time.process_time() - before)
    return statistics.median(seconds)
