"""Ports that need resources, as the Networking API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from compute_agent import errors
from compute_agent.drift.instances.instance import (
    Instance,
    Port,
    PortNotWritten,
    PortsUnreadable,
    port_of,
)
from compute_agent.openstack.service import Service, ServiceUnusable

PROFILE: Final = "binding:profile"


class NeutronPorts:
    """The ports of instances, read and written through the Networking API."""

    writable = True

    def __init__(self, service: Service) -> None:
        self._service = service

    def of(self, instance: Instance) -> tuple[Port, ...]:
        """Return the ports of an instance that ask for resources.

        :raises PortsUnreadable: they cannot be read.
        """
        doing = f"Listing the ports of instance {instance.uuid}"
        try:
            ports = list(
                self._service.pages("/ports", "ports", doing, device_id=instance.uuid, limit="500")
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
            self._service.put(f"/ports/{port.uuid}", doing, {"port": {PROFILE: dict(profile)}})
        except ServiceUnusable as error:
            raise PortNotWritten(str(error)) from error
