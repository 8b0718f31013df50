"""The base of every fake driver: nodes and guests in memory, and ways to make both misbehave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from oslo_config import cfg

from compute_agent.virt.capabilities import CAPABILITY_TRAITS
from compute_agent.virt.driver import ComputeDriver, InstanceDevices
from compute_agent.virt.fake.instances import (
    BuildAborted,
    FakeInstance,
    FakeInstances,
    GuestFailure,
    GuestOperation,
)

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


class FakeHypervisor(ComputeDriver):
    """Runs guests in memory, on nodes of its own."""

    capabilities: ClassVar[Mapping[str, bool]] = CAPABILITIES

    failing: ClassVar[Mapping[GuestOperation, int]] = {}
    """How many first attempts of an operation fail; -1 = all."""

    aborts_builds: ClassVar[bool] = False

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.instances = FakeInstances()
        self._attempts: Counter[GuestOperation] = Counter()

    def list_instance_uuids(self) -> list[str]:
        return sorted(instance.uuid for instance in self.instances)

    def get_instance_devices(self, uuid: str) -> InstanceDevices | None:
        instance = self.instances.get(uuid)
        return instance.devices if instance else None

    def spawn(
        self, uuid: str, *, nodename: str | None = None, devices: InstanceDevices | None = None
    ) -> FakeInstance:
        """Start a guest.

        :param nodename: the first node where it is not given.
        :raises GuestFailure: it runs already, or the driver is one whose guests do not start.
        """
        return self._start(GuestOperation.SPAWN, uuid, nodename, devices)

    def unshelve(
        self, uuid: str, *, nodename: str | None = None, devices: InstanceDevices | None = None
    ) -> FakeInstance:
        """Start a guest again that was put away. Raises as `spawn`."""
        return self._start(GuestOperation.UNSHELVE, uuid, nodename, devices)

    def finish_migration(
        self, uuid: str, *, nodename: str | None = None, devices: InstanceDevices | None = None
    ) -> FakeInstance:
        """Start a guest that came from another host. Raises as `spawn`."""
        return self._start(GuestOperation.FINISH_MIGRATION, uuid, nodename, devices)

    def destroy(self, uuid: str) -> None:
        """End a guest, here or not."""
        self.instances.remove(uuid)

    def _start(
        self,
        operation: GuestOperation,
        uuid: str,
        nodename: str | None,
        devices: InstanceDevices | None,
    ) -> FakeInstance:
        self._attempts[operation] += 1
        failures = self.failing.get(operation, 0)
        if failures < 0 or self._attempts[operation] <= failures:
            failure = BuildAborted if self.aborts_builds else GuestFailure
            raise failure(
                f"{operation.value} of guest {uuid} failed, as {type(self).__name__}'s do."
            )
        node = nodename or self.get_available_nodes()[0]
        instance = FakeInstance(uuid, node, devices or InstanceDevices())
        self.instances.add(instance)
        return instance


class EndlessMigrations(FakeHypervisor):
    """Live migrations that go on until `instances.end_migration`, or until the guest is gone."""

    def live_migration(self, uuid: str, timeout: float) -> bool:
        """Migrate a guest away; whether a test ended it before `timeout` seconds."""
        with self.instances.migrating(uuid) as end_event:
            has_ended = end_event.wait(timeout)
        if has_ended:
            self.instances.remove(uuid)
        return has_ended
