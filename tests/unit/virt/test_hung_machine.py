"""A machine of which a part does not answer: the driver names it and is not held up."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compute_agent import errors
from compute_agent.discovery import bounded_calls
from compute_agent.discovery.bounded_calls import BoundedCalls
from compute_agent.discovery.errors import CallHangs
from compute_agent.discovery.nvml.source import NvmlSource
from compute_agent.virt.host import HostDriver

from .conftest import MakeConf

pytestmark = pytest.mark.waiting

PATIENCE = 60.0
MEMORY = "sys/devices/system/node/node0/meminfo"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Copy a captured machine, to be damaged."""
    return Path(shutil.copytree("tests/data/two-cells", tmp_path / "machine", symlinks=True))


@pytest.fixture
def driver(make_conf: MakeConf, machine: Path, tmp_path: Path) -> HostDriver:
    """Make a driver of that machine, with the shortest deadline."""
    (tmp_path / "instances").mkdir()
    # without its record the disk is that of the machine that runs this
    (machine / "capture.json").unlink()
    driver = HostDriver(
        make_conf(
            f"[DEFAULT]\ninstances_path = {tmp_path}/instances\n"
            f"[host]\nsysfs_root = {machine}/sys\nprocfs_root = {machine}/proc\n"
            "[compute_agent]\ncall_timeout = 1\n"
        )
    )
    driver.init_host("host1")
    return driver


@pytest.fixture
def never() -> Iterator[Callable[..., None]]:
    """Give a function that returns at the end of the test."""
    let_go = threading.Event()

    def wait(*_arguments: object) -> None:
        assert let_go.wait(PATIENCE)

    yield wait
    let_go.set()


def hang(file: Path) -> Callable[[], None]:
    """Make reading a file hang, until the function that is returned is called."""
    text = file.read_bytes()
    file.unlink()
    os.mkfifo(file)

    def answer() -> None:
        hung, whole = file.with_name("hung"), file.with_name("whole")
        hung.hardlink_to(file)
        whole.write_bytes(text)
        whole.replace(file)  # first, so that nobody opens again what hangs
        hung.write_bytes(text)
        hung.unlink()

    return answer


def test_a_machine_that_hangs_is_not_looked_at_twice(driver: HostDriver, machine: Path) -> None:
    answer = hang(machine / MEMORY)
    with pytest.raises(errors.VirtDriverNotReady):
        driver.get_available_resource("host1")
    threads = threading.active_count()
    for _ in range(3):
        with pytest.raises(errors.VirtDriverNotReady, match=f"{MEMORY} has not returned since"):
            driver.get_available_resource("host1")
    assert threading.active_count() == threads
    assert [(call.source, call.call) for call in driver.hung_calls()] == [
        ("this machine", str(machine / MEMORY))
    ]
    answer()


def test_a_machine_that_answers_again_is_reported_as_changed_and_read(
    driver: HostDriver, machine: Path
) -> None:
    changed = threading.Event()
    driver.watch(lambda _what: changed.set())
    before = driver.get_available_resource("host1")
    answer = hang(machine / MEMORY)
    with pytest.raises(errors.VirtDriverNotReady):
        driver.get_available_resource("host1")
    answer()
    assert changed.wait(PATIENCE)
    assert driver.hung_calls() == ()
    assert driver.get_available_resource("host1") == before


def test_a_machine_that_hangs_at_the_start_is_waited_for(driver: HostDriver, machine: Path) -> None:
    answer = hang(machine / MEMORY)
    with pytest.raises(errors.VirtDriverNotReady):
        driver.init_host("host1")
    answer()


@pytest.mark.parametrize(("call", "hung"), [("statvfs", "instances"), ("walk", "instances/_base")])
def test_a_disk_or_an_image_cache_of_a_dead_server_is_named(
    driver: HostDriver,
    never: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: str,
    hung: str,
) -> None:
    driver.conf.set_override("reserve_disk_resource_for_image_cache", True, "workarounds")
    monkeypatch.setattr(os, call, never)
    with pytest.raises(
        errors.VirtDriverNotReady, match=f"{tmp_path}/{hung} has not returned since"
    ):
        driver.get_available_resource("host1")


def test_the_function_of_nvml_that_hangs_is_named(
    never: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pynvml = pytest.importorskip("pynvml")
    calls = BoundedCalls("this machine")

    def hang() -> None:
        # the deadline passes only once the function is called, however slow the machine is
        calls.stop_waiting()
        never()

    monkeypatch.setattr(bounded_calls, "NOTICEABLE", 0.0)
    monkeypatch.setattr(pynvml, "nvmlInit", hang)
    with pytest.raises(CallHangs, match="this machine: nvmlInit has not returned since"):
        calls.run("look", NvmlSource().read)
