"""Options that a nova.conf may have and that are without effect here.

They parse, so that an existing file stays valid, and the agent names those that are set once at its
start. An option that gets an effect moves to the module of its group.
"""

from __future__ import annotations

from oslo_config import cfg

LIBVIRT_OPTS: list[cfg.Opt] = [
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
]

COMPUTE_OPTS: list[cfg.Opt] = [
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
]

SCHEDULER_OPTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "discover_hosts_in_cells_interval",
        default=-1,
        min=-1,
        help="Without effect: placement names the hosts, there are no cells to look for them in.",
    ),
]

_ANNOUNCED_BY_NO_AGENT = "Without effect: no agent announces what it is about."

FILTER_SCHEDULER_OPTS: list[cfg.Opt] = [
    cfg.FloatOpt("image_props_weight_multiplier", default=0.0, help=_ANNOUNCED_BY_NO_AGENT),
    cfg.ListOpt("image_props_weight_setting", default=[], help=_ANNOUNCED_BY_NO_AGENT),
    cfg.FloatOpt("metrics_weight_multiplier", default=1.0, help=_ANNOUNCED_BY_NO_AGENT),
]

WORKAROUND_OPTS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "disable_fallback_pcpu_query",
        default=False,
        help="Without effect: CPUs of a guest's own are looked for as PCPU only.",
    ),
]

METRICS_OPTS: list[cfg.Opt] = [
    cfg.FloatOpt("weight_multiplier", default=1.0, help=_ANNOUNCED_BY_NO_AGENT),
    cfg.ListOpt("weight_setting", default=[], help=_ANNOUNCED_BY_NO_AGENT),
    cfg.BoolOpt("required", default=True, help=_ANNOUNCED_BY_NO_AGENT),
    cfg.FloatOpt("weight_of_unavailable", default=-10000.0, help=_ANNOUNCED_BY_NO_AGENT),
]

BY_GROUP: dict[str, list[cfg.Opt]] = {
    "compute": COMPUTE_OPTS,
    "filter_scheduler": FILTER_SCHEDULER_OPTS,
    "libvirt": LIBVIRT_OPTS,
    "metrics": METRICS_OPTS,
    "scheduler": SCHEDULER_OPTS,
    "workarounds": WORKAROUND_OPTS,
}


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options without effect on `conf`."""
    for group, opts in BY_GROUP.items():
        conf.register_opts(opts, group=group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return list(BY_GROUP.items())


def names() -> list[tuple[str, str]]:
    """Return group and name of every option without effect."""
    return [(group, opt.dest) for group, opts in BY_GROUP.items() for opt in opts]
