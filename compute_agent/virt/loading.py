"""The driver that the configuration names, found and made."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Final

from oslo_config import cfg

from compute_agent import errors
from compute_agent.conf import check_values
from compute_agent.virt.driver import ComputeDriver

ENTRY_POINTS: Final = "compute_agent.drivers"
_BUILTIN: Final = {
    "fake": "compute_agent.virt.fake",
    "host": "compute_agent.virt.host",
    "libvirt": "compute_agent.virt.libvirt.driver",
}


def load_driver(name: str | None, conf: cfg.ConfigOpts) -> ComputeDriver:
    """Make the driver named in [DEFAULT]compute_driver.

    :param name: libvirt.LibvirtDriver, host.HostDriver, fake.<Class>, a name of the entry point
        group, or the full path of a class.
    :raises InvalidConfiguration: there is no such driver; names what there is. Or an option that
        the driver itself registers has a wrong value.
    """
    if not name:
        raise errors.InvalidConfiguration(
            f"[DEFAULT]compute_driver is empty. Set it to one of {_known_drivers()}."
        )
    driver_class = _builtin(name) or _entry_point(name) or _by_path(name)
    if not (isinstance(driver_class, type) and issubclass(driver_class, ComputeDriver)):
        raise errors.InvalidConfiguration(
            f"[DEFAULT]compute_driver = {name} is not a subclass of "
            "compute_agent.virt.driver.ComputeDriver."
        )
    try:
        return driver_class(conf)
    except cfg.ConfigFileValueError:
        check_values(conf)
        raise


def _builtin(name: str) -> object | None:
    kind, _dot, class_name = name.rpartition(".")
    if kind not in _BUILTIN:
        return None
    return getattr(importlib.import_module(_BUILTIN[kind]), class_name, None)


def _entry_point(name: str) -> object | None:
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        try:
            loaded_object: object = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise errors.InvalidConfiguration(
                f"[DEFAULT]compute_driver = {name} is installed as {entry_point.value}, which "
                f"cannot be imported: {error}. Repair or remove the package that provides it."
            ) from error
        return loaded_object
    return None


def _by_path(name: str) -> object:
    module, _dot, class_name = name.rpartition(".")
    if not module or module in ("host", "libvirt", "fake"):
        raise errors.InvalidConfiguration(
            f"[DEFAULT]compute_driver = {name}: there is no such driver. Known are "
            f"{_known_drivers()}; a driver of your own is named by the full path of its class."
        )
    try:
        return getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise errors.InvalidConfiguration(
            f"[DEFAULT]compute_driver = {name} cannot be imported: {error}. Known are "
            f"{_known_drivers()}; a driver of your own is named by the full path of its class."
        ) from error


def _known_drivers() -> str:
    own = ["host.HostDriver", "libvirt.LibvirtDriver"]
    registered_names = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return ", ".join([*own, *sorted(registered_names - {*own}), "fake.CLASS for tests"])
