"""A stand-in for Nova and Neutron: answers in the shapes of the public API references.

It is neither of them: they cannot be had in a test. It answers the few requests that
operators' tools make, with the keys that the API references show at the microversion asked for, and
knows nothing of policy but whether the user is an administrator.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fixtures.stub_server import StubHandler, StubServer

MAX_VERSION = "2.100"
NEEDED_VERSION = "2.98"
FINISHED = "completed"


def server(uuid: str, host: str | None, **changes: Any) -> dict[str, Any]:
    """A server as `GET /servers/detail` shows it to an administrator at 2.98."""
    shown = {
        "id": uuid,
        "name": "a server",
        "status": "ACTIVE",
        "tenant_id": "a-project",
        "user_id": "a-user",
        "created": "2026-01-01T00:00:00Z",
        "image": {
            "id": IMAGE,
            "links": [{"rel": "bookmark", "href": "http://nova/images/70a599e0"}],
            "properties": {"architecture": "x86_64", "min_ram": "0"},
        },
        "flavor": {
            "vcpus": 2,
            "ram": 512,
            "disk": 10,
            "ephemeral": 0,
            "swap": 0,
            "original_name": "m1.small",
            "extra_specs": {},
        },
        "OS-EXT-SRV-ATTR:host": host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": host,
        "OS-EXT-SRV-ATTR:instance_name": "instance-00000001",
        "OS-EXT-STS:task_state": None,
        "OS-EXT-STS:vm_state": "active",
        "OS-EXT-STS:power_state": 1,
    }
    return shown | changes


def down_cell_server(uuid: str) -> dict[str, Any]:
    """What is shown from 2.69 on of a server whose cell does not answer."""
    return {
        "id": uuid,
        "status": "UNKNOWN",
        "tenant_id": "a-project",
        "created": "2026-01-01T00:00:00Z",
        "links": [],
    }


def migration(uuid: str, instance: str, status: str) -> dict[str, Any]:
    """A migration as `GET /os-migrations` shows it at 2.80."""
    return {
        "id": 1,
        "uuid": uuid,
        "instance_uuid": instance,
        "status": status,
        "migration_type": "migration",
        "source_compute": "one",
        "source_node": "one",
        "dest_compute": "two",
        "dest_node": "two",
        "old_instance_type_id": 1,
        "new_instance_type_id": 2,
        "created_at": "2026-01-01T00:00:00.000000",
        "updated_at": None,
        "user_id": "a-user",
        "project_id": "a-project",
    }


IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"


def hypervisor(uuid: str, host: str, state: str = "up") -> dict[str, Any]:
    """A hypervisor as `GET /os-hypervisors/detail` shows it from 2.53 on."""
    return {
        "id": uuid,
        "hypervisor_hostname": host,
        "hypervisor_type": "QEMU",
        "hypervisor_version": 8002000,
        "host_ip": "192.0.2.1",
        "state": state,
        "status": "enabled",
        "service": {"id": "e81d66a4-ddd3-4aba-8a84-171d1cb4d339", "host": host},
    }


def port(uuid: str, device: str, request: Any, profile: Any = None) -> dict[str, Any]:
    """A port as `GET /v2.0/ports` shows it to an administrator."""
    return {
        "id": uuid,
        "device_id": device,
        "device_owner": "compute:nova",
        "network_id": "396f12f8-521e-4b91-8e21-2e003500433a",
        "status": "ACTIVE",
        "resource_request": request,
        "binding:vnic_type": "direct",
        "binding:profile": profile or {},
        "binding:host_id": "one",
    }


@dataclass
class Cloud:
    """What the stand-in has, and what it was asked.

    :ivar page: entries in one answer of a list.
    :ivar unlisted: servers that lists leave out, as those of a cell that is down.
    :ivar refused: paths whose requests are answered with this status, by `METHOD path`.
    """

    url: str = ""
    servers: list[dict[str, Any]] = field(default_factory=list)
    migrations: list[dict[str, Any]] = field(default_factory=list)
    ports: list[dict[str, Any]] = field(default_factory=list)
    hypervisors: list[dict[str, Any]] = field(default_factory=list)
    unlisted: set[str] = field(default_factory=set)
    version: str = MAX_VERSION
    page: int = 2
    refused: dict[str, int] = field(default_factory=dict)
    refuse_after: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def options(self) -> dict[str, dict[str, Any]]:
        """The configuration that leads here."""
        way = {"auth_type": "noauth", "status_code_retries": 0}
        return {
            "compute_agent": {"instance_source": "nova"},
            "nova": {**way, "endpoint_override": f"{self.url}/v2.1"},
            "neutron": {**way, "endpoint_override": self.url},
        }

    def answer(
        self, method: str, target: str, version: str, body: Any
    ) -> tuple[int, dict[str, Any]]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        self.requests.append((method, target, version))
        for pattern, status in self.refused.items():
            if re.fullmatch(pattern, f"{method} {path}"):
                if self.refuse_after:
                    self.refuse_after -= 1
                else:
                    return status, {"forbidden": {"code": status, "message": "refused"}}
        if path in ("/v2.1", "/v2.1/"):
            about = {"id": "v2.1", "version": self.version, "min_version": "2.1"}
            return 200, {"version": about}
        assert version == NEEDED_VERSION or not path.startswith("/v2.1")
        if path == "/v2.1/servers/detail":
            if query.get("all_tenants") != ["1"]:
                return 200, {"servers": []}
            listed = [server for server in self.servers if server.get("id") not in self.unlisted]
            return self._page(path, "servers", listed, query)
        if path == "/v2.1/os-migrations":
            return self._page(path, "migrations", self.migrations, query, key="uuid")
        if path == "/v2.1/os-hypervisors/detail":
            return self._page(path, "hypervisors", self.hypervisors, query)
        if path.startswith("/v2.1/servers/"):
            found = [server for server in self.servers if server["id"] == path.rsplit("/", 1)[1]]
            if not found:
                return 404, {"itemNotFound": {"code": 404, "message": "no such instance"}}
            return 200, {"server": found[0]}
        if path == "/v2.0/ports":
            [device] = query["device_id"]
            listed = [port for port in self.ports if port["device_id"] == device]
            return self._page(path, "ports", listed, query)
        if path.startswith("/v2.0/ports/") and method == "PUT":
            [found_port] = [port for port in self.ports if port["id"] == path.rsplit("/", 1)[1]]
            found_port.update(body["port"])
            return 200, {"port": found_port}
        return 404, {"itemNotFound": {"code": 404, "message": f"no {path}"}}

    def _page(
        self,
        path: str,
        name: str,
        entries: list[dict[str, Any]],
        query: dict[str, list[str]],
        *,
        key: str = "id",
    ) -> tuple[int, dict[str, Any]]:
        marker = query.get("marker", [""])[0]
        ids = [entry.get(key) for entry in entries]
        begin = ids.index(marker) + 1 if marker else 0
        size = min(self.page, int(query.get("limit", [str(self.page)])[0]))
        shown = entries[begin : begin + size]
        document: dict[str, Any] = {name: shown}
        if begin + size < len(entries):
            kept = "&".join(f"{k}={v[0]}" for k, v in query.items() if k != "marker")
            # services know themselves under a name that may not be reached from here
            href = f"http://behind-the-balancer{path}?{kept}&marker={shown[-1][key]}"
            document[f"{name}_links"] = [{"rel": "next", "href": href}]
        return 200, document


@contextmanager
def running_cloud() -> Iterator[Cloud]:
    """A stand-in on loopback until the end of the block."""
    cloud = Cloud()

    class Handler(StubHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            asked = self.headers.get("openstack-api-version", "").removeprefix("compute ")
            status, document = cloud.answer(self.command, self.path, asked, body)
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = _serve

    with StubServer(Handler) as server:
        cloud.url = server.url
        yield cloud
