"""Hypervisors that are too old."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.virt.libvirt.host_traits import check_versions

from .readings import hypervisor


@pytest.mark.parametrize(
    ("libvirt", "qemu", "fault"),
    [
        ((7, 10, 0), (6, 2, 0), r"libvirt 7\.10\.0 is older than 8\.0\.0\."),
        ((8, 0, 0), (6, 1, 1), r"QEMU 6\.1\.1 is older than 6\.2\.0\."),
        ((7, 0, 0), (5, 2, 0), r"libvirt 7\.0\.0 .* and QEMU 5\.2\.0"),
    ],
)
def test_an_old_hypervisor_is_refused_with_both_versions(
    libvirt: tuple[int, int, int], qemu: tuple[int, int, int], fault: str
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=fault):
        check_versions(hypervisor(libvirt=libvirt, qemu=qemu))


def test_the_oldest_versions_are_new_enough() -> None:
    check_versions(hypervisor(libvirt=(8, 0, 0), qemu=(6, 2, 0)))


def test_only_qemu_has_a_version_of_qemu() -> None:
    check_versions(hypervisor(kind="LXC", libvirt=(8, 0, 0), qemu=(5, 0, 0)))
    check_versions(hypervisor(kind="TEST", libvirt=(1, 0, 0), qemu=(0, 0, 2)))
    with pytest.raises(errors.InvalidConfiguration, match=r"QEMU 5\.0\.0 is older"):
        check_versions(hypervisor(kind="QEMU", libvirt=(8, 0, 0), qemu=(5, 0, 0)))
