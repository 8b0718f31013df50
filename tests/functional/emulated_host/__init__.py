"""The agent with libvirt on a host that QEMU emulates, whose kernel does what it is asked."""

import pytest

pytest.importorskip(
    "libvirt",
    reason="libvirt-python is not installed (pip install '.[libvirt]')",
    exc_type=ImportError,
)
