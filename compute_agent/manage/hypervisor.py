"""Checks of the hypervisor behind the libvirt driver: whether it can be reached and do its part."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from compute_agent import errors
from compute_agent.discovery.errors import CallFailed, DiscoveryError
from compute_agent.manage.diagnosis import Diagnosis, Level, Setting
from compute_agent.virt.libvirt.host_traits import version
from compute_agent.virt.libvirt.settings import cpu_caveats

if TYPE_CHECKING:
    from compute_agent.discovery.libvirt.facts import HypervisorReading
    from compute_agent.virt.libvirt.driver import LibvirtDriver


RUN: Final = Path("/run/libvirt")
SOCKETS: Final = {
    "qemu": ("virtqemud-sock", "libvirt-sock"),
    "lxc": ("virtlxcd-sock", "libvirt-sock"),
    "parallels": ("virtvzd-sock", "libvirt-sock"),
}
"""Sockets of the daemon of each kind of hypervisor, and of the one for all kinds."""

HYPERVISORS: Final = {"kvm": "QEMU", "qemu": "QEMU", "lxc": "LXC"}
"""What libvirt calls the hypervisor that runs guests of a `virt_type`."""


def examine_hypervisor(driver: LibvirtDriver) -> Iterator[Diagnosis]:
    """Check the connection, the kinds of guests, and what the options need of the machine."""
    uri = driver.settings.uri
    try:
        reading = driver.hypervisor()
    except errors.VirtDriverNotReady as error:
        if isinstance(error.__cause__, CallFailed):
            text = f"{uri} answers and cannot describe its host: {error} Look at the daemon's log"
        else:
            text = why_unreachable(uri, f"{error.__cause__ or error}.")
        yield Diagnosis(Level.ERROR, "libvirt", text)
        return
    text = (
        f"{uri} answers as {reading.hostname}: {reading.hypervisor} "
        f"{_version_text(reading.hypervisor_version)}, "
        f"libvirt {_version_text(reading.libvirt_version)}"
    )
    yield Diagnosis(Level.FINE, "libvirt", text)
    yield from _kind_of_guests(driver, reading)
    yield from _guest_cpus(driver, reading)
    yield from _emulated_tpms(driver, reading)
    if driver.settings.is_local:
        yield from _modules(driver)
    yield from _guests(driver)


def why_unreachable(uri: str, error: str) -> str:
    """Return what keeps this user from a hypervisor, and what to do."""
    sockets = sockets_of(uri)
    if not sockets:
        return f"{error} Check that {uri} can be reached from here: virsh --connect '{uri}' version"
    try:
        there = [path for path in sockets if path.exists()]
        if not there:
            return (
                f"{error} No daemon of libvirt listens here: there is no "
                f"{' and no '.join(map(str, sockets))}. Install libvirt, or start it: systemctl "
                "enable --now libvirtd.socket (or virtqemud.socket)"
            )
        path = there[0]
        if not os.access(path, os.W_OK, effective_ids=True):
            return f"{error} {_no_permission(path)}"
    except PermissionError as denial:
        return f"{error} {_user()} may not look into {Path(denial.filename or '/').parent}"
    if "authentication" in error or "polkit" in error:
        return (
            f"{error} The daemon asks polkit, which does not let {_user()} manage guests: add a "
            "rule for org.libvirt.unix.manage in /etc/polkit-1/rules.d, or set auth_unix_rw of "
            "the daemon to none and let the group of its socket decide"
        )
    return f"{error} {path} is there, and its daemon does not answer: look at its log, restart it"


def sockets_of(uri: str) -> tuple[Path, ...]:
    """Return where a daemon of this machine listens; () for one of another machine."""
    parts = urlsplit(uri)
    driver, _, transport = parts.scheme.partition("+")
    socket_parameters = parse_qs(parts.query).get("socket")
    if parts.hostname or transport not in ("", "unix") or driver not in SOCKETS:
        return ()
    return (
        (Path(socket_parameters[0]),)
        if socket_parameters
        else tuple(RUN / name for name in SOCKETS[driver])
    )


def _no_permission(path: Path) -> str:
    status = path.stat()
    owner, group = _user(status.st_uid), _group(status.st_gid)
    text = (
        f"{_user()} may not connect to {path}, which belongs to {owner}:{group} with mode "
        f"{stat.S_IMODE(status.st_mode):o}"
    )
    if status.st_mode & stat.S_IWGRP:
        return f"{text}: usermod --append --groups {group} {_user()}, then start the agent again"
    return f"{text}: set unix_sock_group of the daemon to a group that this user is in"


def _kind_of_guests(driver: LibvirtDriver, reading: HypervisorReading) -> Iterator[Diagnosis]:
    virt_type = driver.settings.virt_type
    hypervisor = HYPERVISORS.get(virt_type)
    if reading.hypervisor == "TEST" or hypervisor is None:
        return
    if reading.hypervisor != hypervisor:
        text = (
            f"guests of virt_type {virt_type} are run by {hypervisor}, and {driver.settings.uri} "
            f"is {reading.hypervisor}: correct virt_type or connection_uri"
        )
        yield Diagnosis(Level.WARNING, "virt_type", text)
        return
    offered_types = {
        kind for emulator in reading.capabilities.emulators for kind in emulator.virt_types
    }
    if virt_type in offered_types:
        yield Diagnosis(Level.FINE, "virt_type", f"{virt_type} guests can be run")
        return
    types_text = ", ".join(sorted(offered_types)) or "none"
    text = f"libvirt runs no {virt_type} guests here; it runs {types_text}"
    advice = None
    if virt_type == "kvm":
        text += f". {_why_no_kvm(driver)}. Without KVM guests are emulated, which is slow"
        advice = Setting("libvirt", "virt_type", "qemu") if "qemu" in offered_types else None
    yield Diagnosis(Level.WARNING, "virt_type", text, advice)


def _why_no_kvm(driver: LibvirtDriver) -> str:
    if not driver.settings.is_local:
        return "Look at /dev/kvm on the hypervisor's machine"
    if os.path.exists("/dev/kvm"):
        return (
            "/dev/kvm is there: check that the user of QEMU (/etc/libvirt/qemu.conf) may open it, "
            "then restart the daemon, which remembers what it found"
        )
    if os.path.isdir(os.path.join(driver.conf.host.sysfs_root, "module/kvm")):
        return (
            "There is no /dev/kvm: switch virtualization on in the firmware, then load kvm_intel "
            "or kvm_amd"
        )
    return "There is no /dev/kvm: load the module kvm_intel or kvm_amd"


def _guest_cpus(driver: LibvirtDriver, reading: HypervisorReading) -> Iterator[Diagnosis]:
    options = driver.settings.guest_cpu
    try:
        caveats = list(cpu_caveats(driver.connection, options, reading.capabilities))
    except DiscoveryError as error:
        yield Diagnosis(Level.ERROR, "libvirt", why_unreachable(driver.settings.uri, str(error)))
        return
    for caveat in caveats:
        yield Diagnosis(Level.WARNING, "CPU of guests", caveat)


def _emulated_tpms(driver: LibvirtDriver, reading: HypervisorReading) -> Iterator[Diagnosis]:
    backends = {
        name for capabilities in reading.domain_capabilities for name in capabilities.tpm_backends
    }
    if driver.conf.libvirt.swtpm_enabled and reading.domain_capabilities:
        if "emulator" in backends:
            yield Diagnosis(Level.FINE, "swtpm", "guests can have an emulated TPM")
            return
        text = (
            "swtpm_enabled is set, and libvirt offers guests no emulated TPM: install swtpm and "
            "swtpm-tools and restart the daemon"
        )
        off = Setting("libvirt", "swtpm_enabled", "False")
        yield Diagnosis(Level.WARNING, "swtpm", text, off)


def _modules(driver: LibvirtDriver) -> Iterator[Diagnosis]:
    """Check for parts of the kernel without which devices that are offered reach no guest."""
    sysfs, options = Path(driver.conf.host.sysfs_root), driver.options
    if options.pci.device_specs and not (sysfs / "bus/pci/drivers/vfio-pci").is_dir():
        text = (
            "device_spec offers devices, and vfio-pci, which passes them to guests, is not "
            "loaded: modprobe vfio-pci, and name it in /etc/modules-load.d"
        )
        yield Diagnosis(Level.WARNING, "modules", text)
    if options.gpu.mdev_types and not (sysfs / "class/mdev_bus").is_dir():
        vendor_vfio = any(sysfs.glob("bus/pci/devices/*/nvidia/creatable_vgpu_types"))
        if not vendor_vfio:
            text = (
                "enabled_mdev_types is set, and no driver here makes mediated devices: load the "
                "module mdev and the GPU's driver for hosts of vGPUs"
            )
            yield Diagnosis(Level.WARNING, "modules", text)


def _guests(driver: LibvirtDriver) -> Iterator[Diagnosis]:
    try:
        reading = driver.guests()
    except errors.HypervisorUnavailable as error:
        yield Diagnosis(Level.ERROR, "guests", str(error))
        return
    for uuid, reason in sorted(reading.unread_guests.items()):
        text = f"guest {uuid} cannot be understood ({reason}): look at it with virsh dumpxml {uuid}"
        yield Diagnosis(Level.WARNING, "guests", text)
    running_guests = {uuid: guest for uuid, guest in reading.guests.items() if guest.is_running}
    if driver.settings.is_local:
        memory_kib = {uuid: guest.memory_kib for uuid, guest in running_guests.items()}
        reserved_mib = driver.options.reserved_memory_mib_per_cell.values()
        yield from examine_overhead(
            Path(driver.conf.host.procfs_root),
            memory_kib,
            sum(reserved_mib) or driver.options.reserved_memory_mib,
        )
    yield Diagnosis(
        Level.FINE, "guests", f"{len(reading.guests)} known, {len(running_guests)} running"
    )


def _user(uid: int | None = None) -> str:
    """Return the name of a user, by default the one who runs this; a number without a name."""
    uid = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _version_text(number: int) -> str:
    return ".".join(map(str, version(number)))


_RESIDENT = re.compile(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB$", re.MULTILINE)


def overheads(procfs: Path, memory_kib: Mapping[str, int]) -> dict[str, int]:
    """Return the KiB that the process of each guest has resident beyond the guest's memory.

    A guest that has not touched all its memory yet counts as 0; one without a process is left out.

    :param memory_kib: of the guests that run, by uuid.
    """
    found: dict[str, int] = {}
    for process in procfs.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            uuid = words[words.index("-uuid") + 1].lower() if "-uuid" in words[:-1] else ""
            if uuid in memory_kib:
                status = (process / "status").read_text()
                resident_kib = sum(map(int, _RESIDENT.findall(status)))
                found[uuid] = max(0, resident_kib - memory_kib[uuid])
        except OSError:
            continue  # it ended meanwhile, or is not ours to see
    return found


def examine_overhead(
    procfs: Path, memory_kib: Mapping[str, int], reserved_mib: int
) -> Iterator[Diagnosis]:
    """Check that what guests take beyond their memory is reserved."""
    found = overheads(procfs, memory_kib)
    if not found:
        return
    taken_mib = -(-sum(found.values()) // 1024)
    text = (
        f"{len(found)} guest(s) take {taken_mib} MiB beyond their memory, and {reserved_mib} MiB "
        "are reserved for that and for the host itself"
    )
    if taken_mib < reserved_mib:
        yield Diagnosis(Level.FINE, "overhead", text)
        return
    needed = Setting("DEFAULT", "reserved_host_memory_mb", str(taken_mib + 512))
    yield Diagnosis(Level.WARNING, "overhead", f"{text}: the host may run out of memory", needed)
