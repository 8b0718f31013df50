"""From options of group libvirt to the values its driver works with; contradictions end a start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from oslo_config import cfg
from oslo_log import log

from compute_agent import errors
from compute_agent.discovery.errors import DiscoveryError
from compute_agent.discovery.facts import DiskStore
from compute_agent.discovery.libvirt import cpu_features
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.discovery.libvirt.facts import HostCapabilities
from compute_agent.discovery.storage import CephPool, DiskSource
from compute_agent.virt.libvirt.host_traits import TraitOptions
from compute_agent.virt.settings import disk_source

DEFAULT_URIS: Final = {
    "kvm": "qemu:///system",
    "qemu": "qemu:///system",
    "lxc": "lxc:///",
    "parallels": "parallels:///system",
}

LOG = log.getLogger(__name__)
CPU_CHOOSING: Final = ("kvm", "qemu")
"""Kinds of guests whose CPU can be chosen."""
TEST_KINDS: Final = {"test"}
"""Kinds of guests of libvirt's test driver, which pretends to run any."""
_FLAG: Final = re.compile(r"(?P<sign>[+-]?)(?P<name>[a-z0-9][a-z0-9_.-]*)")


class LibvirtSettings(Struct, frozen=True):
    """Options of the driver that are not options of a layout.

    :ivar uri: of the hypervisor, as qemu:///system.
    :ivar is_local: it manages the machine that the agent runs on.
    """

    uri: str
    virt_type: str
    is_local: bool
    guest_cpu: GuestCpuOptions
    traits: TraitOptions


def libvirt_settings(conf: cfg.ConfigOpts) -> LibvirtSettings:
    """Return the options of the driver.

    :raises InvalidConfiguration: an option that cannot be used, with its value and a way out.
    """
    virt_type = conf.libvirt.virt_type
    uri = conf.libvirt.connection_uri or DEFAULT_URIS[virt_type]
    return LibvirtSettings(
        uri,
        virt_type,
        is_local(uri),
        guest_cpu_options(conf),
        TraitOptions(
            virt_type,
            tpm=conf.libvirt.swtpm_enabled,
            tpm_secrets=tuple(conf.libvirt.supported_tpm_secret_security),
            images_type=conf.libvirt.images_type,
            file_backed_memory=conf.libvirt.file_backed_memory > 0,
        ),
    )


class _RemoteStorage:
    """Files or a volume group of another machine, which nothing here can measure."""

    remedy = (
        "run the agent on that machine, or let a provider with the trait "
        "MISC_SHARES_VIA_AGGREGATE give the disk"
    )

    def measure(self) -> DiskStore:
        raise DiscoveryError("the disks of guests are on the hypervisor's own machine")


def disk_seen_from_elsewhere(conf: cfg.ConfigOpts) -> DiskSource:
    """Return what measures the store of guests' disks on another machine: a pool of Ceph, or none.

    :raises InvalidConfiguration: the store has no name.
    """
    source = disk_source(conf)
    return source if isinstance(source, CephPool) else _RemoteStorage()


def is_local(uri: str) -> bool:
    """Whether a URI names a hypervisor of this machine: no other host, not the test driver.

    >>> is_local("qemu:///system"), is_local("qemu+tls://host2/system"), is_local("test:///default")
    (True, False, False)
    """
    parts = urlsplit(uri)
    return not parts.hostname and parts.scheme.partition("+")[0] != "test"


def guest_cpu_options(conf: cfg.ConfigOpts) -> GuestCpuOptions:
    """Return the options on the CPU of guests.

    :raises InvalidConfiguration: they contradict each other.
    """
    virt_type, mode = conf.libvirt.virt_type, conf.libvirt.cpu_mode
    models = tuple(conf.libvirt.cpu_models)
    if virt_type not in CPU_CHOOSING and mode not in (None, "none"):
        raise errors.InvalidConfiguration(
            f"[libvirt]cpu_mode = {mode} cannot be combined with [libvirt]virt_type = {virt_type}, "
            "whose guests have the CPU of the host. Remove cpu_mode, or set it to none."
        )
    if models and mode != "custom":
        raise errors.InvalidConfiguration(
            f"[libvirt]cpu_models = {', '.join(models)} is for [libvirt]cpu_mode = custom, and "
            f"cpu_mode is {mode or 'not set'}. Set cpu_mode to custom, or remove cpu_models."
        )
    if mode == "custom" and not models:
        raise errors.InvalidConfiguration(
            "[libvirt]cpu_mode = custom needs [libvirt]cpu_models, which is empty. Name the models "
            "in it, as `virsh cpu-models ARCH` lists them."
        )
    added_flags, removed_flags = _extra_flags(conf)
    if (added_flags or removed_flags) and (mode == "none" or virt_type not in CPU_CHOOSING):
        LOG.warning(
            "[libvirt]cpu_model_extra_flags = %s has no effect with [libvirt]virt_type = %s and "
            "cpu_mode = %s. Remove it, or set another cpu_mode.",
            ",".join(conf.libvirt.cpu_model_extra_flags),
            virt_type,
            mode,
        )
        added_flags, removed_flags = (), ()
    return GuestCpuOptions(virt_type, mode, models, added_flags, removed_flags)


def check_guest_cpu(
    connection: LibvirtConnection,
    options: GuestCpuOptions,
    host: HostCapabilities,
) -> None:
    """Check the options against the host, and warn of what guests would not start with.

    :raises InvalidConfiguration: libvirt does not know a model; names those it knows.
    :raises DiscoveryError: there is no answer now.
    """
    if options.models:
        _check_models(connection, options, host.arch)
    for caveat in cpu_caveats(connection, options, host):
        LOG.warning("%s.", caveat)
    kinds = {
        kind
        for emulator in host.emulators
        if emulator.arch == host.arch
        for kind in emulator.virt_types
    }
    if options.virt_type not in kinds and kinds != TEST_KINDS:
        LOG.warning(
            "[libvirt]virt_type = %s, and the hypervisor runs no such %s guests, only %s. For kvm, "
            "check that /dev/kvm exists and that the user of QEMU may open it.",
            options.virt_type,
            host.arch,
            ", ".join(sorted(kinds)) or "none",
        )


def _check_models(connection: LibvirtConnection, options: GuestCpuOptions, arch: str) -> None:
    known_names = cpu_features.known_models(connection, arch)
    _models, unknown_models = cpu_features.spell_models(options.models, known_names)
    if unknown_models:
        raise errors.InvalidConfiguration(
            f"[libvirt]cpu_models names {', '.join(unknown_models)}, which libvirt does not know "
            f"for {arch}. It knows {', '.join(known_names)}."
        )


def cpu_caveats(
    connection: LibvirtConnection, options: GuestCpuOptions, host: HostCapabilities
) -> Iterator[str]:
    """Yield a sentence for each CPU with which libvirt would start no guest on this host.

    :raises DiscoveryError: there is no answer now.
    """
    for model in cpu_features.unfit_models(connection, options, host):
        yield (
            f"[libvirt]cpu_models names {model}, and the CPU of this host "
            f"({host.model or host.arch}) lacks features of it: libvirt starts no guest with this "
            "model here, and its traits are reported anyway; remove it from cpu_models"
        )
    if options.virt_type == "qemu" and options.mode == "host-passthrough":
        yield (
            "[libvirt]cpu_mode = host-passthrough needs virt_type = kvm: libvirt starts no "
            "emulated guest with it, and the traits are those of host-model; set cpu_mode to that"
        )


def _extra_flags(conf: cfg.ConfigOpts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    flags: dict[str, set[str]] = {"+": set(), "-": set()}
    for text in conf.libvirt.cpu_model_extra_flags:
        match = _FLAG.fullmatch(text.strip().lower())
        if match is None:
            raise errors.InvalidConfiguration(
                f"[libvirt]cpu_model_extra_flags: {text!r} is not the name of a feature, with + or "
                "- before it or neither, as pdpe1gb or -vmx."
            )
        flags[match["sign"] or "+"].add(match["name"])
    contradictory_flags = flags["+"] & flags["-"]
    if contradictory_flags:
        raise errors.InvalidConfiguration(
            "[libvirt]cpu_model_extra_flags both adds and removes "
            f"{', '.join(sorted(contradictory_flags))}. Remove one of the two."
        )
    return tuple(sorted(flags["+"])), tuple(sorted(flags["-"]))
