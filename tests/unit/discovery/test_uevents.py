"""Events of the kernel about devices: bursts are told once, guests' interfaces not at all."""

import queue
import socket

import pytest

from compute_agent.discovery.uevents import HardwareEvents, parse


def uevent(action: str, device: str, subsystem: str) -> bytes:
    fields = [f"ACTION={action}", f"DEVPATH={device}", f"SUBSYSTEM={subsystem}", "SEQNUM=815", ""]
    return "\0".join([f"{action}@{device}", *fields]).encode()


VF = uevent("add", "/devices/pci0000:80/0000:81:10.0", "pci")


@pytest.mark.parametrize(
    ("datagram", "words"),
    [
        (VF, "add pci 0000:81:10.0"),
        (uevent("offline", "/devices/system/cpu/cpu3", "cpu"), "offline cpu cpu3"),
        (uevent("online", "/devices/system/memory/memory33", "memory"), "online memory memory33"),
        (uevent("change", "/devices/pci0000:80/0000:81:00.0/net/eth0", "net"), "change net eth0"),
        (uevent("add", "/devices/virtual/net/tap3f", "net"), ""),
        (uevent("change", "/devices/pci0000:00/0000:00:1f.2/ata1/block/sda", "block"), ""),
        (b"", ""),
        (b"\xff\xff", ""),
        (b"libudev\0\xfe\xed", ""),
        (b"add@/devices/x\0", ""),
    ],
)
def test_only_what_a_host_is_described_by_concerns_it(datagram, words):
    assert parse(datagram) == words


@pytest.fixture
def heard():
    """Told changes, the socket to tell events into, and what begins to listen to it."""
    told: queue.Queue[str] = queue.Queue()
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    events = HardwareEvents(told.put, ours, quiet=0.1)
    yield told, kernels, events.start
    events.stop()
    kernels.close()
    assert ours.fileno() == -1, "closed with it"


def test_a_burst_is_told_once_by_its_first_event(heard):
    told, kernels, listen = heard
    for number in range(8):
        kernels.send(uevent("add", f"/devices/pci0000:80/0000:81:10.{number}", "pci"))
        kernels.send(uevent("add", f"/devices/virtual/net/tap{number}", "net"))
    listen()
    assert told.get(timeout=30) == "add pci 0000:81:10.0"
    kernels.send(uevent("offline", "/devices/system/cpu/cpu3", "cpu"))
    assert told.get(timeout=30) == "offline cpu cpu3", "the rest of the burst was no second one"


def test_guests_that_come_and_go_are_not_told(heard):
    told, kernels, listen = heard
    kernels.send(uevent("add", "/devices/virtual/net/tap3f", "net"))
    kernels.send(VF)
    listen()
    assert told.get(timeout=30) == "add pci 0000:81:10.0"
