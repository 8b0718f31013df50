"""Oldest versions of libvirt and QEMU that the driver works with."""

from __future__ import annotations

from typing import Final

from compute_agent import errors
from compute_agent.discovery.libvirt.facts import HypervisorReading

OLDEST_LIBVIRT: Final = (8, 0, 0)
OLDEST_QEMU: Final = (6, 2, 0)

TEST: Final = "TEST"
"""libvirt's test driver, which has no QEMU and the version of the library."""


def version(number: int) -> tuple[int, int, int]:
    """Return a version that libvirt packs into one number.

    >>> version(7002022)
    (7, 2, 22)
    """
    return number // 1_000_000, number // 1_000 % 1_000, number % 1_000


def check_versions(reading: HypervisorReading) -> None:
    """Check the versions of libvirt and, where it is the hypervisor, of QEMU.

    :raises InvalidConfiguration: one is too old.
    """
    if reading.hypervisor == TEST:
        return
    installed_versions = [("libvirt", version(reading.libvirt_version), OLDEST_LIBVIRT)]
    if reading.hypervisor == "QEMU":
        installed_versions.append(("QEMU", version(reading.hypervisor_version), OLDEST_QEMU))
    faults = [
        f"{name} {_version_text(actual)} is older than {_version_text(oldest)}"
        for name, actual, oldest in installed_versions
        if actual < oldest
    ]
    if faults:
        raise errors.InvalidConfiguration(
            f"The hypervisor at {reading.hostname} is too old for libvirt.LibvirtDriver: "
            f"{' and '.join(faults)}. Update it, or set [DEFAULT]compute_driver to "
            "host.HostDriver, which needs no hypervisor."
        )


def _version_text(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))
