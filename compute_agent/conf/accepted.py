"""Options that a nova.conf may have and that are without effect here.

They parse, so that an existing file stays valid, and the agent names those that are set once at its
start. An option that gets an effect moves to the module of its group.
"""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

_NO_DISKS: Final = "Without effect: this agent attaches no disks."
_NO_GUESTS: Final = "Without effect: this agent stops no guests."
_NO_GOVERNOR: Final = "Without effect: this agent sets no governor."
_BY_LIBVIRT: Final = "Without effect: libvirt reports how many guests with AMD SEV there can be."
_NO_CELLS: Final = (
    "Without effect: placement names the hosts, there are no cells to look for them in."
)
_AS_PCPU: Final = "Without effect: CPUs of a guest's own are looked for as PCPU only."
_NOT_ANNOUNCED: Final = "Without effect: no agent announces what it is about."

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "compute": [
        cfg.IntOpt("max_disk_devices_to_attach", default=-1, min=-1, help=_NO_DISKS),
        cfg.IntOpt("shutdown_retry_interval", default=10, min=1, help=_NO_GUESTS),
    ],
    "filter_scheduler": [
        cfg.FloatOpt("image_props_weight_multiplier", default=0.0, help=_NOT_ANNOUNCED),
        cfg.ListOpt("image_props_weight_setting", default=[], help=_NOT_ANNOUNCED),
        cfg.FloatOpt("metrics_weight_multiplier", default=1.0, help=_NOT_ANNOUNCED),
    ],
    "libvirt": [
        cfg.StrOpt("cpu_power_governor_low", default="powersave", help=_NO_GOVERNOR),
        cfg.StrOpt("cpu_power_governor_high", default="performance", help=_NO_GOVERNOR),
        cfg.IntOpt("num_memory_encrypted_guests", help=_BY_LIBVIRT),
    ],
    "metrics": [
        cfg.FloatOpt("weight_multiplier", default=1.0, help=_NOT_ANNOUNCED),
        cfg.ListOpt("weight_setting", default=[], help=_NOT_ANNOUNCED),
        cfg.BoolOpt("required", default=True, help=_NOT_ANNOUNCED),
        cfg.FloatOpt("weight_of_unavailable", default=-10000.0, help=_NOT_ANNOUNCED),
    ],
    "scheduler": [
        cfg.IntOpt("discover_hosts_in_cells_interval", default=-1, min=-1, help=_NO_CELLS)
    ],
    "workarounds": [cfg.BoolOpt("disable_fallback_pcpu_query", default=False, help=_AS_PCPU)],
}


def names() -> list[tuple[str, str]]:
    """Return group and name of every option without effect."""
    return [(group, opt.dest) for group, opts in OPTIONS.items() for opt in opts]
