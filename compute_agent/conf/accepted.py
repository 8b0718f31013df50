"""Options that a nova.conf may have and that are without effect here.

They parse, so that an existing file stays valid, and the agent names those that are set once at its
start. An option that gets an effect moves to the module of its group.
"""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

_ANNOUNCED_BY_NO_AGENT = "Without effect: no agent announces what it is about."

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "compute": [
        cfg.IntOpt(
            "max_disk_devices_to_attach",
            default=-1,
            min=-1,
            help="Without effect: this agent attaches no disks.",
        ),
        cfg.IntOpt(
            "shutdown_retry_interval",
            default=10,
            min=1,
            help="Without effect: this agent stops no guests.",
        ),
    ],
    "filter_scheduler": [
        cfg.FloatOpt("image_props_weight_multiplier", default=0.0, help=_ANNOUNCED_BY_NO_AGENT),
        cfg.ListOpt("image_props_weight_setting", default=[], help=_ANNOUNCED_BY_NO_AGENT),
        cfg.FloatOpt("metrics_weight_multiplier", default=1.0, help=_ANNOUNCED_BY_NO_AGENT),
    ],
    "libvirt": [
        cfg.StrOpt(
            "cpu_power_governor_low",
            default="powersave",
            help="Without effect: this agent sets no governor.",
        ),
        cfg.StrOpt(
            "cpu_power_governor_high",
            default="performance",
            help="Without effect: this agent sets no governor.",
        ),
        cfg.IntOpt(
            "num_memory_encrypted_guests",
            help="Without effect: libvirt reports how many guests with AMD SEV there can be.",
        ),
    ],
    "metrics": [
        cfg.FloatOpt("weight_multiplier", default=1.0, help=_ANNOUNCED_BY_NO_AGENT),
        cfg.ListOpt("weight_setting", default=[], help=_ANNOUNCED_BY_NO_AGENT),
        cfg.BoolOpt("required", default=True, help=_ANNOUNCED_BY_NO_AGENT),
        cfg.FloatOpt("weight_of_unavailable", default=-10000.0, help=_ANNOUNCED_BY_NO_AGENT),
    ],
    "scheduler": [
        cfg.IntOpt(
            "discover_hosts_in_cells_interval",
            default=-1,
            min=-1,
            help="Without effect: placement names the hosts, there are no cells to look for "
            "them in.",
        ),
    ],
    "workarounds": [
        cfg.BoolOpt(
            "disable_fallback_pcpu_query",
            default=False,
            help="Without effect: CPUs of a guest's own are looked for as PCPU only.",
        ),
    ],
}


def names() -> list[tuple[str, str]]:
    """Return group and name of every option without effect."""
    return [(group, opt.dest) for group, opts in OPTIONS.items() for opt in opts]
