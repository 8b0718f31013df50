"""Options of group gpu: reading and reporting of physical GPUs."""

from __future__ import annotations

from oslo_config import cfg

from compute_agent.conf.files import numa_node_override

GROUP = "gpu"

gpu_opts = [
    cfg.StrOpt(
        "nvml",
        default="auto",
        choices=[
            ("auto", "ask NVIDIA's management library where it is installed"),
            ("never", "read sysfs only"),
        ],
        help="""
Whether NVIDIA's management library (NVML) adds to what sysfs says of a GPU.

It gives model, memory, stable uuid, compute capability and MIG. Set never where the library hangs
or is unwanted; the GPUs are still reported.
""",
    ),
    cfg.StrOpt(
        "vf_providers",
        default="auto",
        choices=[
            ("auto", "one per VF where placement has such providers already, else one per GPU"),
            ("per_vf", "one provider per virtual function"),
            ("per_pf", "one provider per GPU, counting its virtual functions"),
        ],
        help="""
How the virtual functions of a GPU with SR-IOV, each of which makes one vGPU, become providers.

A host with 8 GPUs of 16 virtual functions has 128 providers with per_vf, which makes every search
for candidates slower; other compute services report them so.
""",
    ),
    cfg.IntOpt(
        "max_vgpus_per_guest",
        min=1,
        help="""
Most vGPUs of one physical GPU that one guest may get. Several vendor drivers allow 1 only. Unset:
no limit.
""",
    ),
    cfg.BoolOpt(
        "type_traits",
        default=True,
        help="""
Put the trait CUSTOM_MDEV_<TYPE> on the provider of a GPU that makes vGPUs of that type.
""",
    ),
    cfg.BoolOpt(
        "mig_classes",
        default=False,
        help="""
Report the MIG devices that exist as resource classes, one per profile: CUSTOM_MIG_1G_10GB. A claim
names the uuids of the devices given. What could still be made of a GPU is shown by `compute-agent
status` and not counted.
""",
    ),
    cfg.BoolOpt(
        "nvlink_traits",
        default=True,
        help="""
Put the trait CUSTOM_NVLINK_GROUP_<N> on the providers of GPUs that reach each other through
NVLinks, N counted from 0 on each host. Needs NVML.
""",
    ),
    cfg.BoolOpt(
        "report_memory_cells",
        default=False,
        help="""
Report NUMA cells that are a GPU's own memory (Grace Hopper) as memory for guests.
""",
    ),
    numa_node_override.option("""
NUMA cell of GPUs for which the firmware says nothing or the wrong thing:
0000:84:00.0=1,0000:c4:00.0=3.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of group gpu on `conf`."""
    conf.register_opts(gpu_opts, group=GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options by group, for the generator of the sample file."""
    return [(GROUP, list(gpu_opts))]
