"""The libvirt driver and its sources on a real libvirt."""

import pytest

pytest.importorskip(
    "libvirt",
    reason="libvirt-python is not installed (pip install '.[libvirt]')",
    exc_type=ImportError,
)
