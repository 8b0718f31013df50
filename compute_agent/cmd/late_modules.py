"""Modules that libraries import at once and an idle program never uses."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
import types
from typing import Any, Final

LATE: Final = (
    "bz2",
    "configparser",
    "dateutil.tz",
    "idna",
    "logging.config",
    "lzma",
    "netaddr",
    "rfc3986",
    "xmlrpc.client",
    "zoneinfo",
)
"""What oslo libraries, requests and shutil need for few options, values and formats: 3.4 MiB."""

_REPLACING: Final = threading.Lock()


class LateModule(types.ModuleType):
    """In the place of a module until something of it is used, and then a way to it.

    `importlib.util.LazyLoader` shows half of a module to other threads before Python 3.11.9.
    """

    def __getattr__(self, name: str) -> Any:
        with _REPLACING:
            # not the module itself, which another thread may have begun to load
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def import_late(*names: str) -> None:
    """Load modules when something of them is first used, unless they are loaded or missing."""
    for name in names:
        package, _, last = name.rpartition(".")
        with contextlib.suppress(ModuleNotFoundError):
            parent = importlib.import_module(package) if package else None
            if name not in sys.modules and (spec := importlib.util.find_spec(name)):
                module = sys.modules[name] = LateModule(name)
                module.__spec__ = spec
                if parent:
                    setattr(parent, last, module)
