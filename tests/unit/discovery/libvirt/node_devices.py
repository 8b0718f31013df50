"""Node devices as libvirt writes them, for tests."""

from __future__ import annotations

UUID = "3627463d-b7f0-4fea-b468-f1da537d301b"


def device(name: str, capability: str, *, parent: str = "computer", driver: str = "") -> str:
    """The whole description of a device; `capability` is its main element."""
    bound = f"<driver><name>{driver}</name></driver>" if driver else ""
    return f"<device><name>{name}</name><parent>{parent}</parent>{bound}{capability}</device>"


def pci(address: str, details: str = "", *, class_code: str = "020000", driver: str = "") -> str:
    """A PCI function 8086:1592; `details` are further elements of it."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    numbers = zip(("domain", "bus", "slot", "function"), (domain, bus, slot, function), strict=True)
    elements = "".join(f"<{name}>{int(number, 16)}</{name}>" for name, number in numbers)
    return device(
        f"pci_{domain}_{bus}_{slot}_{function}",
        f"<capability type='pci'><class>0x{class_code}</class>{elements}"
        f"<product id='0x1592'>E810</product><vendor id='0x8086'>Intel</vendor>{details}"
        "</capability>",
        driver=driver,
    )


def address(text: str) -> str:
    """The element <address> of a PCI function."""
    domain, bus, rest = text.split(":")
    slot, function = rest.split(".")
    return f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/>"


def net(interface: str, parent: str, details: str = "") -> str:
    """A network interface of a device."""
    return device(
        f"net_{interface}_b4_96_91_00_00_01",
        f"<capability type='net'><interface>{interface}</interface>{details}"
        "<capability type='80203'/></capability>",
        parent=parent,
    )


def mdev(name: str, details: str, *, parent: str = "pci_0000_84_00_0") -> str:
    """A mediated device of type nvidia-35."""
    return device(
        name, f"<capability type='mdev'><type id='nvidia-35'/>{details}</capability>", parent=parent
    )
