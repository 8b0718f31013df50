"""Parts of a machine that its layout leaves out, and the options that would report them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from compute_agent.discovery.facts import HostTopology
from compute_agent.virt.layout import HostLayout, LayoutOptions


def unreported(topology: HostTopology, layout: HostLayout, options: LayoutOptions) -> Iterator[str]:
    """Yield a sentence for each kind of which the machine has some and the layout none."""
    reported = {provider.address for provider in layout.providers if provider.inventory}
    if len(topology.cells) > 1 and not options.is_nested:
        yield (
            f"The {len(topology.cells)} NUMA cells of this host are reported as one: placement "
            "does not see which cell is full. "
            "[compute]enable_numa_reporting_to_placement = True reports each; the next start then "
            "moves what guests hold to their cells (a reshape), and they run on."
        )
    gpus = [gpu.address for gpu in topology.gpus if gpu.mdev_types or gpu.vfs or gpu.nvml]
    if gpus and not reported.intersection(gpus):
        yield (
            f"{len(gpus)} GPU(s) are not reported ({gpus[0]}): no guest gets one through "
            "placement. [devices]enabled_mdev_types reports vGPUs, [pci]device_spec whole GPUs; "
            "guests that have one already are given its allocation at the next start."
        )
    ports = [nic for nic in topology.nics if nic.vfs]
    addresses = {nic.address for nic in ports} | {vf.address for nic in ports for vf in nic.vfs}
    if ports and not reported & addresses:
        yield (
            f"{sum(len(nic.vfs) for nic in ports)} virtual functions of network cards are not "
            f"reported ({ports[0].address}). [nic]report_vfs = always counts them, also without "
            "NUMA cells; guests that have some keep them, and hold none in placement until they "
            "are healed or moved."
        )
