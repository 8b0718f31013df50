"""The source that asks NVIDIA's driver, through the binding `pynvml` (extra `nvidia`).

NVML adds to GPUs that sysfs has found: a GPU bound to vfio-pci is invisible to it.
"""
