"""From what a machine is to the providers it should have: pure functions of facts and options.

    HostTopology ─┐
    LayoutOptions ┼─► lay_out ─► HostLayout ─► apply_layout ─► edits of a ProviderTree
    names in use ─┘

Flat layout:

    <host>                          VCPU PCPU MEMORY_MB DISK_GB      HW_ARCH_*, HW_CPU_*
     ├ <host>_pci_0000_84_00_0      VGPU or CUSTOM_*                 one per GPU that makes vGPUs
     ├ <host>_0000:81:00.0          CUSTOM_PCI_8086_10ED             one per PCI device or PF
     └ <host>_amd_sev               MEM_ENCRYPTION_CONTEXT

Nested layout:

    <host>                          DISK_GB                          HW_ARCH_*
     ├ <host>_NUMA0                 VCPU PCPU MEMORY_MB              HW_NUMA_ROOT, HW_CPU_*
     │  ├ <host>_NUMA0_PAGES2048    MEMORY_MB                        CUSTOM_MEMORY_PAGE_SIZE_2048
     │  ├ <host>_pci_0000_17_00_0   VGPU                             CUSTOM_GPU_*
     │  └ <host>_NIC_0000:18:00.0   -                                CUSTOM_NIC_ROOT
     │     └ <host>_0000:18:00.0    SRIOV_NET_VF                     CUSTOM_PHYSNET_*, HW_NIC_*
     └ <host>_NUMA1 ...

A trait that describes a resource is wherever that resource is; one that describes the host stays
on the root. Nothing is inherited.
"""

from __future__ import annotations

from itertools import chain

from compute_agent.discovery.facts import HostTopology
from compute_agent.virt.cpu_sets import guest_cpus
from compute_agent.virt.layout.cells import guest_cells
from compute_agent.virt.layout.compute_resources import (
    cell_providers,
    check_reserves,
    clamp,
    lay_out_memory_encryption,
    root_provider,
)
from compute_agent.virt.layout.devices.gpus import lay_out_gpus
from compute_agent.virt.layout.devices.nics import lay_out_nics, reports_nics, uncounted_functions
from compute_agent.virt.layout.devices.parents import DeviceParents, below_root_ports
from compute_agent.virt.layout.devices.pci import claimed_devices, lay_out_pci, matches, merge_pci
from compute_agent.virt.layout.options import LayoutOptions
from compute_agent.virt.layout.pmem import lay_out_pmem
from compute_agent.virt.layout.unmet_options import unmet_options
from compute_agent.virt.layout.wanted import HostLayout, WantedProvider

__all__ = ["HostLayout", "LayoutOptions", "WantedProvider", "lay_out"]


def lay_out(
    root_name: str,
    topology: HostTopology,
    options: LayoutOptions,
    *,
    existing_names: frozenset[str] = frozenset(),
    shared_disk: bool = False,
) -> HostLayout:
    """Say which providers a host should have.

    :param root_name: name of the root provider.
    :param existing_names: names of the providers that placement has under the root; decides
        between equivalent ways to lay out the virtual functions of GPUs.
    :param shared_disk: disk comes from a sharing provider.
    :raises InvalidConfiguration: the CPU sets do not fit the machine.
    """
    cpus = guest_cpus(
        options.cpu_sets,
        topology.online_cpus,
        topology.present_cpus,
        power_management=options.cpu_power_management,
    )
    cells = guest_cells(topology, cpus, options)
    parents = DeviceParents(cells.provider_of if options.is_nested else {})

    pmem = lay_out_pmem(topology, options.pmem)
    root = root_provider(root_name, topology, cpus, options, shared_disk=shared_disk)
    providers = [pmem.added_to(root)]
    warnings = list(topology.warnings)
    errors = list(check_reserves(topology, cells, options))
    if options.is_nested:
        providers.extend(cell_providers(root_name, topology, cells, options))
        warnings.extend(cells.warnings)
    specs = matches(topology, options.pci)
    claims = claimed_devices(topology, options.pci, specs)
    gpus = lay_out_gpus(
        root_name,
        topology,
        options.gpu,
        parents,
        claimed_addresses=frozenset(claims),
        existing_names=existing_names,
        is_nested=options.is_nested,
    )
    providers.extend(gpus.providers)
    left_out = list(gpus.warnings)
    if reports_nics(options.nic, is_nested=options.is_nested):
        providers.extend(
            lay_out_nics(
                root_name,
                topology,
                options.nic,
                parents,
                is_nested=options.is_nested,
                claims=claims,
                matches=specs,
            )
        )
        left_out.extend(uncounted_functions(topology, options.nic, specs))
    overrides = {**options.nic.numa_node_override, **options.gpu.numa_node_override}
    pci = lay_out_pci(root_name, topology, claims, parents, overrides)
    providers = list(merge_pci(providers, pci.providers))
    if options.pci.report_root_ports:
        providers = list(below_root_ports(root_name, topology, providers))
    providers.extend(lay_out_memory_encryption(root_name, topology, options))

    clamps = [clamp(provider) for provider in providers]
    errors += [
        *chain.from_iterable(faults for _, faults, _ in clamps),
        *gpus.errors,
        *pci.errors,
        *pmem.errors,
    ]
    unmet = tuple(unmet_options(topology, options, specs))
    return HostLayout(
        tuple(provider for provider, _, _ in clamps),
        options.is_nested,
        parents.provider_of,
        (
            *warnings,
            *left_out,
            *chain.from_iterable(clamp_warnings for _, _, clamp_warnings in clamps),
        ),
        tuple(errors),
        unmet,
        (*errors, *map(str, unmet), *left_out),
    )
