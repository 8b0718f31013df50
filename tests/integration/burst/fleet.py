"""A fleet of real processes: placement, schedulers, agents with fake machines, and a broker."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from benchmarks.parts import servers
from tests.fixtures import programs
from tests.fixtures.rabbitmq import RabbitMq
from tests.functional.agent.processes import AgentProcess, PlacementProcess, eventually

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
MACHINE = {
    "cells": 2,
    "cpus_per_cell": 8,
    "memory_mib_per_cell": 16384,
    "gpus": 2,
    "vgpus_per_gpu": 2,
    "nics": 1,
    "pfs_per_nic": 2,
    "vfs_per_pf": 3,
    "disk_gib": 200,
}
DRIVER = "compute_agent.virt.fake.FakeNumaDriver"
RESHAPING = "compute_agent.virt.fake.FakeReshapeDriver"
_STARTED_AT_ONCE = 6
_WORKERS = 2


@dataclass
class Fleet:
    """The processes of one burst.

    :param database: URL of an empty database.
    :param environment: what the processes of a part have in their environment besides this one's;
        the parts are placement, agent and scheduler.
    :param published: whether the published openstack-placement serves in place of this project's
        server, from a virtual environment of its own. On PostgreSQL its release 16.0.0 answered
        500 to a query of the scheduler, with required=!HW_NUMA_ROOT.
    :ivar agents: by the name of their host.
    """

    directory: Path
    database: str
    broker: RabbitMq
    published: bool = False
    environment: Callable[[str], dict[str, str]] = lambda _: {}
    url: str = ""
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    schedulers: list[Path] = field(default_factory=list)
    _running: dict[Path, programs.Process] = field(default_factory=dict)
    _server: PlacementProcess | None = None

    @contextlib.contextmanager
    def running(self, hosts: int, schedulers: int) -> Iterator[Fleet]:
        """Start everything, and kill it in the end."""
        with ExitStack() as ends:
            if self.published:
                directory = self.directory / "published"
                server = servers.published_server(directory, self.database, _WORKERS)
                self.url = ends.enter_context(server).url
            ends.callback(self._end)
            if not self.published:
                self.start_placement()
            for number in range(schedulers):
                self.schedulers.append(self._scheduler_config(number))
            for number in range(hosts):
                # the first host changes its layout each time its agent starts
                self._add_agent(f"host{number}", RESHAPING if number == 0 else DRIVER)
            with ThreadPoolExecutor(_STARTED_AT_ONCE) as pool:
                list(pool.map(self.start_agent, self.agents))
            for config in self.schedulers:
                self.start_scheduler(config)
            yield self

    def start_agent(self, host: str) -> None:
        """Start an agent, and wait until its host is reported."""
        self.agents[host].start(**self.environment("agent"))
        self.agents[host].started()

    def start_scheduler(self, config: Path) -> None:
        """Start a scheduler."""
        with config.with_suffix(".log").open("ab") as output:
            self._running[config] = programs.start(
                "compute-scheduler",
                *("--config-file", str(config), "serve"),
                output=output,
                environment={**os.environ, **self.environment("scheduler")},
            )

    def pids(self, part: str) -> list[int]:
        """Return the processes of a part."""
        if part == "placement":
            assert self._server is not None
            assert self._server.process is not None
            return [self._server.process.pid]
        processes = (
            [agent.process for agent in self.agents.values()]
            if part == "agent"
            else self._running.values()
        )
        return [process.pid for process in processes if process is not None]

    def kill_placement(self) -> None:
        """End placement and its workers at once."""
        if self._server is not None:
            self._server.kill()

    def kill_scheduler(self, config: Path) -> None:
        """End a scheduler at once."""
        process = self._running.pop(config)
        process.kill()
        process.wait()

    def get(self, path: str, **parameters: str) -> Any:
        """Read something of placement."""
        answer = requests.get(self.url + path, params=parameters, headers=HEADERS, timeout=60)
        answer.raise_for_status()
        return answer.json()

    def roots(self) -> dict[str, str]:
        """Return the uuid of each host, by name."""
        return {
            provider["name"]: provider["uuid"]
            for provider in self.get("/resource_providers", required="COMPUTE_NODE")[
                "resource_providers"
            ]
        }

    def free(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return what is free: host, provider, resource class, amount; negative where over."""
        free: dict[str, dict[str, dict[str, int]]] = {}
        for host, root in self.roots().items():
            tree = self.get("/resource_providers", in_tree=root)["resource_providers"]
            free[host] = {provider["name"]: self._free_of(provider["uuid"]) for provider in tree}
        return free

    def holders(self) -> dict[str, Mapping[str, Any]]:
        """Return the allocations of every consumer, provider by provider."""
        held: dict[str, dict[str, Any]] = {}
        for provider in self.get("/resource_providers")["resource_providers"]:
            path = f"/resource_providers/{provider['uuid']}/allocations"
            for consumer, record in self.get(path)["allocations"].items():
                held.setdefault(consumer, {})[provider["uuid"]] = record["resources"]
        return dict(held)

    def _free_of(self, uuid: str) -> dict[str, int]:
        path = f"/resource_providers/{uuid}"
        used = self.get(f"{path}/usages")["usages"]
        return {
            name: int((stock["total"] - stock["reserved"]) * stock["allocation_ratio"]) - used[name]
            for name, stock in self.get(f"{path}/inventories")["inventories"].items()
        }

    def start_placement(self) -> None:
        """Start placement, again on its port."""
        if self._server is None:
            self._server = PlacementProcess(
                self.directory,
                database=self.database,
                arguments=("--workers", str(_WORKERS)),
                environment=self.environment("placement"),
            )
            self.url = self._server.url
        self._server.start()

    def _scheduler_config(self, number: int) -> Path:
        state = self.directory / f"scheduler{number}"
        state.mkdir(exist_ok=True)
        config = state / "scheduler.conf"
        config.write_text(
            f"[DEFAULT]\ntransport_url = {self.broker.url}\nhost = scheduler{number}\n"
            f"state_path = {state}\nservice_down_time = 20\n"
            f"[placement]\nauth_type = noauth\nendpoint_override = {self.url}\n"
            f"[compute_scheduler]\njournal_path = {state / 'journals' / 'journal'}\n"
            "[oslo_messaging_rabbit]\nrabbit_retry_backoff = 0\nkombu_reconnect_delay = 0.1\n"
        )
        return config

    def _add_agent(self, host: str, driver: str) -> None:
        directory = self.directory / host
        directory.mkdir(exist_ok=True)
        self.agents[host] = self._new_agent(
            host,
            DEFAULT={
                "compute_driver": driver,
                "host": host,
                "transport_url": self.broker.url,
                "report_interval": 2,
                "update_resources_interval": 10,
                "initial_cpu_allocation_ratio": 1.0,
            },
            fake=MACHINE,
            oslo_messaging_rabbit={"rabbit_retry_backoff": 0, "kombu_reconnect_delay": 0.1},
        )

    def _new_agent(self, host: str, **options: Any) -> AgentProcess:
        return AgentProcess(self.directory / host, self.url, **options)

    def _end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()
        for agent in self.agents.values():
            agent.cleanup()
        self.kill_placement()

    def all_heard(self) -> None:
        """Wait until every agent is known to a scheduler, as the commands ask it."""
        from compute_agent.scheduler.bus.rpc import SchedulerClient
        from tests.integration.burst.claims import bus_of

        with bus_of(self.schedulers[0]) as bus:
            client = SchedulerClient(bus, timeout=5)

            def heard() -> bool:
                try:
                    hosts = client.call("announced_hosts")["hosts"]
                except Exception:  # noqa: BLE001 - the broker may still be on its way back
                    return False
                return {host["host"] for host in hosts if host["age"] < 10} >= self.agents.keys()

            eventually(heard, "every agent heard by the schedulers")
