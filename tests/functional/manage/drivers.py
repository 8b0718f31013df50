"""Drivers that break in ways the package's own fakes do not."""

from msgspec.structs import replace
from oslo_config import cfg

from compute_agent import errors
from compute_agent.provider_tree import ProviderTree
from compute_agent.virt.driver import Allocations
from compute_agent.virt.fake import FakeDriver, FakeNumaDriver


class OneOfTwoFails(FakeDriver):
    """Two nodes, of which the first cannot be reshaped."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        self.set_nodes([f"{self.conf.DEFAULT.host}-{kind}" for kind in ("bad", "good")])
        return super().get_available_nodes(refresh)

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        super().update_provider_tree(provider_tree, nodename, allocations)
        if nodename.endswith("bad"):
            raise errors.ReshapeFailed("a guest holds what is gone")


class NeverContent(FakeDriver):
    """Asks for a reshape while it is doing one."""

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        raise errors.ReshapeNeeded("again")


class ReservesTooMuch(FakeDriver):
    """Keeps more of two classes for the host than it has."""

    def update_provider_tree(
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        super().update_provider_tree(provider_tree, nodename, allocations)
        inventory = {rc: {"total": 8, "reserved": 9} for rc in ("MEMORY_MB", "DISK_GB")}
        provider_tree.update_inventory(nodename, inventory)


class GuestsUnknown(FakeNumaDriver):
    """A driver that cannot tell its guests."""

    def list_instance_uuids(self) -> None:  # type: ignore[override]
        return None


class NothingHasAPlace(FakeNumaDriver):
    """A machine whose firmware does not say where any of its cards is."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self.machine = replace(
            self.machine,
            gpus=tuple(replace(gpu, numa_node=None) for gpu in self.machine.gpus),
            nics=tuple(replace(nic, numa_node=None) for nic in self.machine.nics),
        )


class GpuNowhere(FakeNumaDriver):
    """A machine whose firmware does not say where its first GPU is."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        first, *others = self.machine.gpus
        self.machine = replace(self.machine, gpus=(replace(first, numa_node=None), *others))
