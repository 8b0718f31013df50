"""The driver that needs nothing but Linux."""

from compute_agent.virt.host.driver import HostDriver

__all__ = ["HostDriver"]
