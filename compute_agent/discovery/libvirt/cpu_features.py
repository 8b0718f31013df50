"""Features of the CPU that guests get, by libvirt's names.

The host's CPU, a model or an emulator's default is a name and some features more. A baseline with
all features expanded returns those that the name stands for, too. KVM gives guests what the CPU of
the host has; emulated CPUs (TCG) have what the emulator implements, whatever the host is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.errors import CallFailed, CallUnsupported
from compute_agent.discovery.libvirt import elements
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.facts import DomainCapabilities, HostCapabilities

LOG = logging.getLogger(__name__)

EXPAND_FEATURES: Final = 1
"""VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES"""
INCOMPATIBLE: Final = 0
"""VIR_CPU_COMPARE_INCOMPATIBLE"""

X86: Final = ("x86_64", "i686")
HOST_MODES: Final = ("host-model", "host-passthrough")
DEFAULT_MODELS: Final = {
    "x86_64": "qemu64",
    "i686": "qemu32",
    "ppc64le": "POWER8",
    "aarch64": "max",
}
"""Model that the emulator chooses if none is asked for, by architecture."""


class GuestCpuOptions(Struct, frozen=True):
    """The CPU that guests are started with.

    :ivar virt_type: kvm, qemu (TCG), lxc or parallels.
    :ivar mode: host-model, host-passthrough, custom or none; None = the default for the host.
    :ivar models: for mode custom, in any case.
    :ivar added_features: features beyond those of the model, lower case.
    :ivar removed_features: features taken away from the model, lower case.
    """

    virt_type: str = "kvm"
    mode: str | None = None
    models: tuple[str, ...] = ()
    added_features: tuple[str, ...] = ()
    removed_features: tuple[str, ...] = ()


def effective_mode(options: GuestCpuOptions, arch: str) -> str:
    """Return the mode of guests' CPUs on a host of this architecture."""
    if options.mode is not None:
        return options.mode
    if arch in X86 and options.virt_type in ("kvm", "qemu"):
        return "host-model"
    if arch == "aarch64" and options.virt_type == "kvm":
        return "host-passthrough"
    return "none"


def cpus_of_guests(
    options: GuestCpuOptions,
    host: HostCapabilities,
    domain_capabilities: Sequence[DomainCapabilities],
) -> tuple[str, ...]:
    """Return the CPUs that guests may get as documents for a baseline; empty = unknown."""
    if options.virt_type not in ("kvm", "qemu"):
        return ()
    mode = effective_mode(options, host.arch)
    if mode == "custom":
        return tuple(model_document(host.arch, model) for model in options.models)
    if mode == "none":
        model = DEFAULT_MODELS.get(host.arch)
        return () if model is None else (model_document(host.arch, model),)
    if options.virt_type == "kvm":
        return (host.cpu_xml,) if host.cpu_xml and host.model else ()
    emulated_models = (
        domain.host_model_xml
        for domain in domain_capabilities
        if domain.arch == host.arch and domain.virt_type == "qemu" and domain.host_model_xml
    )
    return tuple(emulated_models)[:1]


def model_document(arch: str, model: str) -> str:
    """Return a CPU that is a model without anything more, as libvirt reads it."""
    cpu = Element("cpu")
    ElementTree.SubElement(cpu, "arch").text = arch
    ElementTree.SubElement(cpu, "model").text = model
    return ElementTree.tostring(cpu, encoding="unicode")


def features(document: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the features that a CPU has, and those that its model has and it has not.

    :raises FactMalformed: it is not XML.
    """
    by_policy: dict[bool, set[str]] = {True: set(), False: set()}
    for feature in elements.document(document, "a CPU").findall("feature"):
        name = feature.get("name")
        if name:
            by_policy[feature.get("policy", "require") in ("require", "force")].add(name)
    return frozenset(by_policy[True]), frozenset(by_policy[False])


def spell_models(
    models: Sequence[str], known_names: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the models as libvirt spells them, and those that it does not know.

    :param known_names: names; empty = libvirt does not list them for the architecture.
    """
    if not known_names:
        return tuple(models), ()
    spelling = {name.lower(): name for name in known_names}
    found_models = tuple(spelling[m.lower()] for m in models if m.lower() in spelling)
    return found_models, tuple(m for m in models if m.lower() not in spelling)


def known_models(connection: LibvirtConnection, arch: str) -> tuple[str, ...]:
    """Return the CPU models of an architecture by libvirt's names; empty = it does not list them.

    :raises HypervisorUnreachable: there is no answer now.
    """
    try:
        names = connection.call("getCPUModelNames", lambda c: list(c.getCPUModelNames(arch)))
    except CallFailed:
        return ()
    return tuple(sorted(names))


def unfit_models(
    connection: LibvirtConnection, options: GuestCpuOptions, host: HostCapabilities
) -> tuple[str, ...]:
    """Return those of the custom models that KVM cannot run on this host.

    :raises HypervisorUnreachable: there is no answer now.
    """
    if options.virt_type != "kvm" or not options.models:
        return ()

    def is_unfit(model: str) -> bool:
        document = model_document(host.arch, model)
        try:
            result = connection.call("compareCPU", lambda c: int(c.compareCPU(document, 0)))
        except CallFailed:
            return False
        return result == INCOMPATIBLE

    models, _unknown = spell_models(options.models, known_models(connection, host.arch))
    return tuple(filter(is_unfit, models))


def guest_features(
    connection: LibvirtConnection,
    options: GuestCpuOptions,
    host: HostCapabilities,
    domain_capabilities: Sequence[DomainCapabilities],
) -> tuple[str, ...] | None:
    """Return the features of guests' CPUs, the union over several models, sorted.

    :returns: None where libvirt cannot report them.
    :raises HypervisorUnreachable: there is no answer now.
    """
    mode = effective_mode(options, host.arch)
    if host.arch not in X86 and options.virt_type == "kvm" and mode in HOST_MODES:
        # on these libvirt has no models: it lists every feature of the host
        names = frozenset(host.cpu_features)
    else:
        try:
            names = _expand_models(connection, options, host, domain_capabilities)
        except CallUnsupported as error:
            LOG.info("libvirt cannot expand CPU models, so guests' features are unknown: %s", error)
            return None
        except CallFailed as error:
            LOG.warning("The features of guests' CPUs are unknown: %s", error)
            return None
    if not names:
        LOG.info(
            "libvirt reports no features of the CPU that guests get (architecture %s, "
            "virt_type %s, mode %s)",
            host.arch,
            options.virt_type,
            mode,
        )
        return None
    return tuple(sorted(names.union(options.added_features).difference(options.removed_features)))


def _expand_models(
    connection: LibvirtConnection,
    options: GuestCpuOptions,
    host: HostCapabilities,
    domain_capabilities: Sequence[DomainCapabilities],
) -> frozenset[str]:
    names: set[str] = set()
    if options.models:
        models, unknown = spell_models(options.models, known_models(connection, host.arch))
        if unknown:
            raise CallFailed("baselineCPU", f"libvirt does not know the CPU {', '.join(unknown)}")
        options = replace(options, models=models)
    for document in cpus_of_guests(options, host, domain_capabilities):
        names |= _expanded_cpu(connection, options, host.arch, document)
    return frozenset(names)


def _expanded_cpu(
    connection: LibvirtConnection, options: GuestCpuOptions, arch: str, document: str
) -> frozenset[str]:
    """Return all features of one CPU; for TCG only those that the emulator implements."""
    _required_features, disabled_features = features(document)
    if options.virt_type == "qemu":
        arguments = (None, arch, None, "qemu", [document], EXPAND_FEATURES)
        try:
            answer = connection.call(
                "baselineHypervisorCPU", lambda c: str(c.baselineHypervisorCPU(*arguments))
            )
            return features(answer)[0]
        except CallUnsupported:
            LOG.debug("baselineHypervisorCPU is not supported: baselineCPU is asked instead")
    answer = connection.call(
        "baselineCPU", lambda c: str(c.baselineCPU([document], EXPAND_FEATURES))
    )
    return features(answer)[0] - disabled_features
