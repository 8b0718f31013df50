"""A device marked as broken is given to nobody until an operator or a reboot clears the mark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compute_agent import errors
from compute_agent.placement.transports.transport import Request
from compute_agent.provider_tree.trait_names import CUSTOM_GPU_UNHEALTHY
from compute_agent.tracker.place import UNKNOWN
from tests.fixtures.agent_commands import commands_of
from tests.functional.agent.in_process import Node

pytestmark = pytest.mark.waiting

WHOLE = (
    '[pci]\nreport_in_placement = true\ndevice_spec = {"vendor_id": "10de", '
    '"resource_class": "PGPU"%s}\n'
)


class Host:
    """A node with a GPU, whose machine can be booted again.

    :param extra: configuration; with a device specification the GPU is passed through as a whole.
    """

    def __init__(self, app: Any, directory: Path, extra: str = "") -> None:
        self._app, self._directory, self._extra = app, directory, extra
        self.resource_class = "PGPU" if extra else "VGPU"
        (directory / "proc/sys/kernel/random").mkdir(parents=True)
        self.node: Any = None
        self.start(boot="boot-1")

    def start(self, boot: str) -> None:
        """Start the agent, in this boot of the machine."""
        (self._directory / "proc/sys/kernel/random/boot_id").write_text(f"{boot}\n")
        if self.node is not None:
            self.node.parts.close()
        name = None if self.node is None else self.node.name
        extra = f"[host]\nprocfs_root = {self._directory}/proc\n{self._extra}"
        self.node = Node(self._app, self._directory, name=name, extra=extra)
        self.node.gain_a_gpu()
        if self._extra:
            options = self.node.driver.options
            uncut = replace(options.gpu, mdev_types=())
            self.node.driver.options = replace(options, gpu=uncut)
        assert self.node.run().completed
        self.commands = commands_of(self.node.parts, self.node.tracker)

    @property
    def gpu(self) -> Any:
        tree = self.node.parts.report.get_provider_tree(self.node.uuid, fresh=True)
        return next(
            tree.data(uuid)
            for uuid in tree.get_provider_uuids()
            if self.resource_class in tree.data(uuid).inventory
        )

    def break_down(self) -> None:
        """The driver, or an operator, marks the GPU; the next pass takes it out of use."""
        self.node.transport.send(Request("PUT", f"/traits/{CUSTOM_GPU_UNHEALTHY}", (1, 39)))
        self.node.parts.report.change_traits(self.gpu.uuid, add=[CUSTOM_GPU_UNHEALTHY])
        self.node.parts.report.drop_cache()
        assert self.node.run().completed

    def is_out_of_use(self) -> bool:
        gpu = self.gpu
        record = gpu.inventory[self.resource_class]
        reserved = bool(record["reserved"] == record["total"])
        assert (CUSTOM_GPU_UNHEALTHY in gpu.traits) is reserved
        return reserved

    def reserve(self, amount: int) -> None:
        """An operator, or a cleaning tool, reserves some of the GPU in placement."""
        gpu = self.gpu
        inventory = {rc: {**record, "reserved": amount} for rc, record in gpu.inventory.items()}
        self.node.parts.report.placement.providers.put_inventories(
            gpu.uuid, gpu.name, gpu.generation, inventory
        )
        self.node.parts.report.drop_cache()


@pytest.fixture
def host(app, tmp_path):
    made = Host(app, tmp_path)
    yield made
    made.node.parts.close()


@pytest.fixture
def passed_whole(app, tmp_path):
    made = Host(app, tmp_path, WHOLE % "")
    yield made
    made.node.parts.close()


@pytest.fixture
def used_once(app, tmp_path):
    made = Host(app, tmp_path, WHOLE % ', "one_time_use": "true"')
    yield made
    made.node.parts.close()


def test_a_broken_gpu_stays_out_of_use_over_passes_and_restarts(host):
    host.break_down()
    assert host.is_out_of_use()
    assert host.node.run().completed
    assert host.is_out_of_use()
    host.start(boot="boot-1")
    assert host.is_out_of_use()


@pytest.mark.parametrize("named_by", ["uuid", "name"])
def test_an_operator_clears_the_fault_and_the_next_pass_gives_the_gpu_out_again(host, named_by):
    host.break_down()
    assert host.commands.clear_fault(getattr(host.gpu, named_by)) is True
    assert host.node.run().completed
    assert not host.is_out_of_use()
    assert host.commands.clear_fault(host.gpu.uuid) is False
    host.break_down()
    assert host.is_out_of_use(), "a new fault after the old one was cleared"


def test_a_cleared_fault_is_remembered_when_the_agent_ends_before_its_pass(host):
    host.break_down()
    assert host.commands.clear_fault(host.gpu.uuid)
    host.start(boot="boot-1")
    assert not host.is_out_of_use()


def test_a_reboot_of_the_machine_clears_the_fault(host):
    host.break_down()
    host.start(boot="boot-2")
    assert not host.is_out_of_use()


def test_a_driver_that_sees_the_fault_again_keeps_the_mark(host):
    host.break_down()
    tree_of = type(host.node.driver).update_provider_tree

    def still_broken(tree, nodename, allocations=None):
        tree_of(host.node.driver, tree, nodename, allocations)
        tree.add_traits(host.gpu.uuid, CUSTOM_GPU_UNHEALTHY)

    host.node.driver.update_provider_tree = still_broken
    assert host.commands.clear_fault(host.gpu.uuid)
    assert host.node.run().completed
    assert CUSTOM_GPU_UNHEALTHY in host.gpu.traits
    del host.node.driver.update_provider_tree
    assert host.node.run().completed
    assert host.is_out_of_use(), "the order was for the fault of before"


def test_a_provider_that_is_not_of_this_agent_has_no_fault_to_clear(host):
    with pytest.raises(errors.ComputeHostNotFound, match="has a provider elsewhere"):
        host.commands.clear_fault("elsewhere")


def test_without_a_boot_id_marks_outlast_a_reboot_which_a_start_says_once(app, tmp_path, caplog):
    caplog.set_level("INFO")
    node = Node(app, tmp_path, extra=f"[host]\nprocfs_root = {tmp_path}/none\n")
    assert node.parts.setup.place.boot_id == UNKNOWN
    node.parts.close()
    assert caplog.text.count("as reboots cannot be detected") == 1


def test_a_gpu_passed_through_whole_is_given_out_again_when_its_fault_is_cleared(passed_whole):
    passed_whole.break_down()
    assert passed_whole.is_out_of_use()
    passed_whole.start(boot="boot-1")
    assert passed_whole.is_out_of_use()
    assert passed_whole.commands.clear_fault(passed_whole.gpu.uuid)
    assert passed_whole.node.run().completed
    assert not passed_whole.is_out_of_use()
    passed_whole.break_down()
    passed_whole.start(boot="boot-2")
    assert not passed_whole.is_out_of_use(), "a reboot clears the fault as an operator does"


def test_a_device_that_was_used_up_stays_so_when_its_fault_is_cleared(used_once):
    used_once.reserve(1)
    assert used_once.node.run().completed
    used_once.break_down()
    assert used_once.commands.clear_fault(used_once.gpu.uuid)
    assert used_once.node.run().completed
    gpu = used_once.gpu
    assert CUSTOM_GPU_UNHEALTHY not in gpu.traits
    assert gpu.inventory["PGPU"]["reserved"] == 1, "who cleans it has not said that it is clean"
