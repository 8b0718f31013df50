"""The driver of a hypervisor that libvirt manages."""
