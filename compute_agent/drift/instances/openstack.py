"""Servers, migrations and ports, as the Compute and Networking APIs show them.

Servers are read at microversion 2.98, the first at which a server carries its flavor and the
properties of its image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from compute_agent import errors
from compute_agent.drift.instances.instance import (
    Instance,
    Listing,
    Port,
    PortNotWritten,
    PortsUnreadable,
    instance_of,
    port_of,
)
from compute_agent.openstack.service import Service, ServiceUnusable
from compute_agent.placement.provider_directory import ProviderDirectory

VERSION: Final = (2, 98)
PAGE: Final = "500"
HOST: Final = "OS-EXT-SRV-ATTR:host"
NODE: Final = "OS-EXT-SRV-ATTR:hypervisor_hostname"
TASK: Final = "OS-EXT-STS:task_state"
UNSETTLED: Final = ("BUILD", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "MIGRATING", "DELETED")
PROFILE: Final = "binding:profile"
ENDED: Final = ("completed", "confirmed", "reverted", "failed", "cancelled", "done")


class Nova(Struct, eq=False):
    """The Compute API, as a source of instances and of what they need.

    :ivar is_for_few: whether suspects are few, each of which is asked for by itself: the lists of
        Nova are long.
    """

    name = "nova"

    service: Service
    say: Callable[[str], None] = lambda _text: None
    is_for_few: bool = False
    _is_checked: bool = False

    def look(self, directory: ProviderDirectory) -> Listing:
        """List servers and unfinished migrations; for few suspects only whom these move.

        :raises ServiceUnusable: they cannot be listed.
        """
        if self.is_for_few:
            # migrations cannot be asked for one by one; those in error count too
            moving_uuids = {
                str(migration[key])
                for migration in self.unfinished_migrations()
                for key in ("uuid", "instance_uuid")
            }
            return Listing(frozenset(moving_uuids), complete=True, knows_migrations=True)
        self.say("asking Nova for the servers and migrations of all projects")
        migrations = self.unfinished_migrations()
        moving = {_text(migration, "instance_uuid") for migration in migrations}
        roots: dict[str, set[str]] = {}
        up: set[str] = set()
        # the ids of the nodes of all compute services are the uuids of root providers
        for hypervisor in self._api().pages(
            "/os-hypervisors/detail", "hypervisors", "Listing the hypervisors", limit=PAGE
        ):
            uuid, host = _text(hypervisor, "id"), _text(hypervisor, "service", "host")
            roots.setdefault(host, set()).add(uuid)
            up.update([uuid] if hypervisor.get("state") == "up" else [])
        known_uuids: set[str] = set()
        by_host: dict[str, set[str]] = {}
        for server in self.servers():
            known_uuids.add(_text(server, "id"))
            if not _why_unsettled(server, moving) and server[HOST] in roots:
                by_host.setdefault(str(server[HOST]), set()).add(str(server["id"]))
        # one that ended in error is over as soon as its server is gone
        known_uuids |= {
            _text(migration, "uuid")
            for migration in migrations
            if migration.get("status") != "error"
            or _text(migration, "instance_uuid") in known_uuids
        }
        return Listing(
            frozenset(known_uuids),
            by_host={host: frozenset(uuids) for host, uuids in by_host.items()},
            roots={host: frozenset(uuids) for host, uuids in roots.items()},
            silent=frozenset(directory.hosts - up),
            complete=True,
            knows_migrations=True,
        )

    def is_gone(self, uuid: str) -> bool:
        """Return whether no server of a uuid exists.

        A list leaves out servers of cells that are down, and those that a page break hides.

        :raises ServiceUnusable: it is not known.
        """
        return self.server(uuid) is None

    def instances(self, only: str | None = None) -> Iterator[Instance]:
        """Every server, or one.

        :raises ServiceUnusable: they cannot be read.
        """
        migrations = self.unfinished_migrations()
        moving = {_text(migration, "instance_uuid") for migration in migrations}
        if only is None:
            servers: Iterator[Mapping[str, Any]] = self.servers()
        else:
            found_server = self.server(only)
            servers = iter(() if found_server is None else (found_server,))
        for server in servers:
            yield _instance(server, _why_unsettled(server, moving))

    def servers(self) -> Iterator[Mapping[str, Any]]:
        """Yield the servers of all projects.

        :raises ServiceUnusable: they cannot be read.
        """
        servers = self._api().pages(
            "/servers/detail", "servers", "Listing the servers", all_tenants="1", limit=PAGE
        )
        yield from map(_server, servers)

    def server(self, uuid: str) -> Mapping[str, Any] | None:
        """One server, None where there is none.

        :raises ServiceUnusable: it cannot be read.
        """
        try:
            body = self._api().get(f"/servers/{uuid}", f"Reading server {uuid}")
        except ServiceUnusable as error:
            if error.status == 404:
                return None
            raise
        server = body.get("server")
        if not isinstance(server, dict):
            raise _not_understood("server", body)
        return _server(server)

    def unfinished_migrations(self) -> list[Mapping[str, Any]]:
        """Return the migrations, resizes and evacuations under way, with those in error.

        :raises ServiceUnusable: they cannot be read.
        """
        migrations = self._api().pages(
            "/os-migrations", "migrations", "Listing the migrations", limit=PAGE
        )
        return [migration for migration in migrations if migration.get("status") not in ENDED]

    def _api(self) -> Service:
        """Return the service, once it is known that it offers the microversion."""
        if self._is_checked:
            return self.service
        body = self.service.get("", "Asking Nova for its versions")
        try:
            major, minor = str(body["version"]["version"]).split(".")
            newest = (int(major), int(minor))
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceUnusable(
                "Asking Nova for its versions failed: its answer names none. The endpoint of "
                "group [nova] must be that of the Compute API v2.1."
            ) from error
        text = ".".join(map(str, VERSION))
        if newest < VERSION:
            raise ServiceUnusable(
                f"Nova offers microversions up to {major}.{minor}; {text} is needed, which came "
                "with 2025.1."
            )
        self._is_checked = True
        self.service.headers["OpenStack-API-Version"] = f"compute {text}"
        self.service.headers["X-OpenStack-Nova-API-Version"] = text
        return self.service


class NeutronPorts(Struct, eq=False):
    """The ports of instances, read and written through the Networking API."""

    writable = True
    service: Service

    def of(self, instance: Instance) -> tuple[Port, ...]:
        """Return the ports of an instance that ask for resources.

        :raises PortsUnreadable: they cannot be read.
        """
        doing = f"Listing the ports of instance {instance.uuid}"
        try:
            ports = list(
                self.service.pages("/ports", "ports", doing, device_id=instance.uuid, limit="500")
            )
            if any(PROFILE not in port for port in ports):
                raise ServiceUnusable(
                    f"{doing} failed: Neutron does not show this user {PROFILE}. Give group "
                    "[neutron] the credential of an administrator of the whole cloud."
                )
            return tuple(port_of(port) for port in ports if port.get("resource_request"))
        except errors.ComputeAgentError as error:
            raise PortsUnreadable(str(error)) from error

    def bind(self, port: Port, profile: Mapping[str, Any]) -> None:
        """Give a port another binding profile.

        :raises PortNotWritten: Networking refused, or did not answer.
        """
        doing = f"Writing the binding profile of port {port.uuid}"
        try:
            self.service.put(f"/ports/{port.uuid}", doing, {"port": {PROFILE: dict(profile)}})
        except ServiceUnusable as error:
            raise PortNotWritten(str(error)) from error


def _server(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entry, if what is read below has the types that it has in the Compute API.

    :raises ServiceUnusable: it has others.
    """
    _text(entry, "id")
    for name in ("flavor", "image"):
        if entry.get(name) and not isinstance(entry[name], Mapping):
            raise _not_understood(f"an object {name}", entry)
    if not isinstance(entry.get(HOST), str | None):
        raise _not_understood(f"a text {HOST}", entry)
    return entry


def _instance(server: Mapping[str, Any], unsettled_reason: str) -> Instance:
    flavor, image = server.get("flavor") or {}, server.get("image") or {}
    try:
        return instance_of(
            {
                "uuid": server["id"],
                "host": server.get(HOST),
                "node": server.get(NODE),
                "project_id": server.get("tenant_id"),
                "user_id": server.get("user_id") or "unknown",
                "flavor": {
                    "vcpus": flavor.get("vcpus"),
                    "memory_mb": flavor.get("ram"),
                    "root_gb": flavor.get("disk"),
                    "ephemeral_gb": flavor.get("ephemeral"),
                    "swap": flavor.get("swap") or 0,
                    "extra_specs": flavor.get("extra_specs"),
                    "name": flavor.get("original_name"),
                },
                "image": {"properties": image.get("properties")},
                "is_bfv": not image,
                "unsettled": unsettled_reason,
            }
        )
    except (KeyError, ValueError, errors.ComputeAgentError) as error:
        raise ServiceUnusable(
            f"Nova's answer about server {server.get('id')} is not understood: {error}"
        ) from error


def _text(entry: Mapping[str, Any], *path: str) -> str:
    """Return a text somewhere in an answer; without it nothing is known of what exists.

    :raises ServiceUnusable: it is not there.
    """
    value: Any = entry
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        raise _not_understood(".".join(path), entry)
    return value


def _not_understood(name: str, entry: Mapping[str, Any]) -> ServiceUnusable:
    return ServiceUnusable(
        f"Nova's answer is not understood: expected {name} in {str(entry)[:200]}. Check what "
        "answers at the endpoint of group [nova]."
    )


def _why_unsettled(server: Mapping[str, Any], moving: set[str]) -> str:
    """Why nothing is to be changed about a server now; empty where something may be."""
    if "flavor" not in server:
        return "Nova cannot show more of it: its cell is down"
    if HOST not in server:
        raise ServiceUnusable(
            "Nova does not show this user where servers run. Give group [nova] the credential of "
            "an administrator of the whole cloud."
        )
    if "extra_specs" not in (server["flavor"] or {}):
        return "Nova does not show the extra specs of its flavor to this user"
    if server.get("status") in UNSETTLED:
        return f"its status is {server['status']}"
    if server.get(TASK):
        return f"its task state is {server[TASK]}"
    if server["id"] in moving:
        return "a migration, resize or evacuation of it is not finished"
    return "" if server.get(HOST) else "it is on no host"
