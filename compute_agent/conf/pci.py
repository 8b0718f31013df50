"""Options of group pci: PCI devices that are handed to guests whole."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "pci": [
        cfg.MultiStrOpt(
            "device_spec",
            default=[],
            deprecated_opts=[
                cfg.DeprecatedOpt("passthrough_whitelist"),
                cfg.DeprecatedOpt("pci_passthrough_whitelist", group="DEFAULT"),
            ],
            help="""
PCI devices that guests may get, as JSON: a dict, or a list of dicts. May be given several times;
the first dict that matches a device is used.

A dict matches by vendor_id, product_id, and address (a string with globs such as *:0a:00.*, or a
dict of the regular expressions domain, bus, slot, function) or devname. Tags: physical_network,
trusted, remote_managed, managed (no: the hypervisor does not change the driver of the device),
live_migratable, one_time_use, resource_class, traits.
""",
        ),
        cfg.MultiStrOpt(
            "alias",
            default=[],
            deprecated_opts=[cfg.DeprecatedOpt("pci_alias", group="DEFAULT")],
            help="""
Name with which a flavor requests a kind of PCI device, as JSON: name, vendor_id, product_id,
device_type (type-PCI, type-PF, type-VF, type-VDPA; default: type-PCI or type-VF), numa_policy
(legacy, preferred, required, socket), resource_class, traits, live_migratable (yes: only devices
that can migrate with a running guest; no: only other devices).
""",
        ),
        cfg.BoolOpt(
            "report_in_placement",
            default=False,
            help="""
Report the devices of device_spec as inventory in placement. Devices with a physical_network and
remote managed devices are not reported. device_spec must then match by address or by vendor_id
and product_id, not by devname.
""",
        ),
        cfg.BoolOpt(
            "report_root_ports",
            default=False,
            help="""
Report each PCI root port that has several reported devices behind it as a provider with the
trait CUSTOM_PCIE_ROOT, between the NUMA cell and these devices. GPUs and network cards of one
PCI switch can then be requested together. Devices that were reported before only get another
parent.
""",
        ),
    ]
}
