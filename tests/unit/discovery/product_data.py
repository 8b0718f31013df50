"""Vital product data of a PCI device."""

from __future__ import annotations


def vpd(serial: bytes) -> bytes:
    """Vital product data: a product's name, then part and serial number."""
    fields = b"PN\x04MCX6" + b"SN" + bytes([len(serial)]) + serial + b"RV\x01\x00"
    name = b"ConnectX-6"
    return (
        bytes([0x82, len(name), 0]) + name + bytes([0x90, len(fields), 0]) + fields + bytes([0x78])
    )
