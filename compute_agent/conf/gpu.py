"""Options of group gpu: reading and reporting of physical GPUs."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

from compute_agent.conf.files import numa_node_override

OPTIONS: Final[dict[str, list[cfg.Opt]]] = {
    "gpu": [
        cfg.StrOpt(
            "nvml",
            default="auto",
            choices=[
                ("auto", "use NVIDIA's management library if it is installed"),
                ("never", "read sysfs only"),
            ],
            help="""
Whether to read GPUs from NVIDIA's management library (NVML) in addition to sysfs.

NVML provides the model, memory, stable UUID, compute capability and MIG devices. Set it to never
if the library hangs or is not wanted; the GPUs are still reported.
""",
        ),
        cfg.StrOpt(
            "vf_providers",
            default="auto",
            choices=[
                ("auto", "per_vf if placement already has such providers, else per_pf"),
                ("per_vf", "one provider per virtual function"),
                ("per_pf", "one provider per GPU, counting its virtual functions"),
            ],
            help="""
How the virtual functions of a GPU with SR-IOV become providers. Each of them makes one vGPU.

With per_vf, a host with 8 GPUs of 16 virtual functions has 128 providers. This is how other
compute services report them, and it makes every search for candidates slower.
""",
        ),
        cfg.IntOpt(
            "max_vgpus_per_guest",
            min=1,
            help="""
Maximum number of vGPUs of one physical GPU that one guest may get. Some vendor drivers allow
only 1. Unset: no limit, except the limit that NVML reports for the type.
""",
        ),
        cfg.BoolOpt(
            "type_traits",
            default=True,
            help="""
Add the trait CUSTOM_MDEV_<TYPE> to the provider of a GPU that makes vGPUs of that type.
""",
        ),
        cfg.BoolOpt(
            "mig_classes",
            default=False,
            help="""
Report existing MIG devices, with one resource class for each profile, for example
CUSTOM_MIG_1G_10GB. A claim names the UUIDs of its devices. MIG devices that could still be
created on a GPU are not counted; `compute-agent status` shows them.
""",
        ),
        cfg.BoolOpt(
            "nvlink_traits",
            default=True,
            help="""
Add the trait CUSTOM_NVLINK_GROUP_<N> to the providers of GPUs that are connected by NVLinks, which
needs NVML, and CUSTOM_XGMI_GROUP_<N> to those of AMD that are connected by XGMI. N counts from 0 on
each host.
""",
        ),
        cfg.BoolOpt(
            "keep_links",
            default=True,
            help="""
Give a guest of one GPU one of a group of linked GPUs that is broken already, so that whole groups
stay for guests of several. The agent and the scheduler read it.
""",
        ),
        cfg.BoolOpt(
            "report_memory_cells",
            default=False,
            help="""
Report NUMA cells that consist of the memory of a GPU (Grace Hopper) as memory for guests.
""",
        ),
        numa_node_override.option("""
NUMA cell of GPUs for which the firmware reports no cell or a wrong cell, for example
0000:84:00.0=1,0000:c4:00.0=3.
"""),
    ]
}
