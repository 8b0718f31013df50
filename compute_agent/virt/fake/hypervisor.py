"""The base of every fake driver: guests in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from oslo_config import cfg

from compute_agent import errors
from compute_agent.virt.capabilities import CAPABILITY_TRAITS
from compute_agent.virt.driver import ComputeDriver, InstanceDevices

CAPABILITIES: Mapping[str, bool] = {
    **dict.fromkeys(CAPABILITY_TRAITS, False),
    "supports_attach_interface": True,
    "supports_device_tagging": True,
    "supports_tagged_attach_interface": True,
    "supports_tagged_attach_volume": True,
    "supports_extend_volume": True,
    "supports_multiattach": True,
    "supports_trusted_certs": True,
    "supports_image_type_raw": True,
    "supports_image_type_qcow2": True,
}


class GuestFailure(errors.ComputeAgentError):
    """A hypervisor could not start a guest."""


class FakeHypervisor(ComputeDriver):
    """Runs guests in memory."""

    capabilities: ClassVar[Mapping[str, bool]] = CAPABILITIES

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._devices_by_guest: dict[str, InstanceDevices] = {}

    def list_instance_uuids(self) -> list[str]:
        return sorted(self._devices_by_guest)

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        return self._devices_by_guest.get(uuid)

    def spawn(self, uuid: str, *, devices: InstanceDevices | None = None) -> None:
        """Start a guest.

        :raises GuestFailure: it runs already.
        """
        if uuid in self._devices_by_guest:
            raise GuestFailure(f"Guest {uuid} is running on this host already.")
        self._devices_by_guest[uuid] = devices or InstanceDevices()

    def destroy(self, uuid: str) -> None:
        """End a guest, here or not."""
        self._devices_by_guest.pop(uuid, None)
