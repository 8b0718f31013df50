"""Formats in which a kernel shows numbers of CPUs, PCI functions and their data in /sys."""

from __future__ import annotations

import struct


def numbers(text: str) -> list[int]:
    """Return the numbers of a list as the kernel writes it: 0-3,8."""
    ranges = [part.split("-") for part in text.split(",") if part]
    return [number for part in ranges for number in range(int(part[0]), int(part[-1]) + 1)]


def cpu_map(cpus: str) -> str:
    """Return the mask of a list: words of 32 CPUs, the highest first."""
    mask = sum(1 << cpu for cpu in numbers(cpus))
    words = max(1, (mask.bit_length() + 31) // 32)
    return ",".join(f"{mask >> (32 * word) & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def config_space(vendor: str, product: str, class_code: str) -> bytes:
    """The standard header; libvirt passes over a device without one."""
    header = bytearray(64)
    struct.pack_into("<HH", header, 0, int(vendor, 16), int(product, 16))
    header[8] = 0x02
    header[9:12] = int(class_code, 16).to_bytes(3, "little")
    header[14] = 1 if class_code.startswith("0604") else 0
    struct.pack_into("<HH", header, 44, int(vendor, 16), 1)
    return bytes(header)


def vpd(serial: bytes) -> bytes:
    """Vital product data: a product's name, then part and serial number."""
    fields = b"PN\x04MCX6" + b"SN" + bytes([len(serial)]) + serial + b"RV\x01\x00"
    name = b"ConnectX-6"
    return (
        bytes([0x82, len(name), 0]) + name + bytes([0x90, len(fields), 0]) + fields + bytes([0x78])
    )


def uevent(address: str, vendor: str, product: str, class_code: str, driver: str | None) -> str:
    lines = [] if driver is None else [f"DRIVER={driver}"]
    lines += [
        f"PCI_CLASS={int(class_code, 16):X}",
        f"PCI_ID={vendor.upper()}:{product.upper()}",
        f"PCI_SUBSYS_ID={vendor.upper()}:0001",
        f"PCI_SLOT_NAME={address}",
    ]
    return "\n".join(lines)
