"""oslo.messaging, loaded so that it works with plain threads, and transports that stand alone."""

from __future__ import annotations

import warnings
from typing import Any

from oslo_config import cfg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # eventlet says that it is deprecated; it is not used
    from oslo_service import backend

    # chosen before the first use, or oslo.service falls back on eventlet
    backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging

__all__ = ["open_bus", "oslo_messaging"]


def open_bus(url: str, conf: cfg.ConfigOpts | None = None) -> Any:
    """Return a transport to the bus at `url`.

    The library registers options of its own, some under names that `conf` has with other defaults:
    it gets another configuration object, read from the same files. That is the global one, since
    some of its options (tracing, metrics) it registers nowhere else.
    """
    own = cfg.CONF
    files = list(conf.config_file or ()) if conf is not None else []
    directories = list(conf.config_dir or ()) if conf is not None else []
    own([], default_config_files=files, default_config_dirs=directories)
    return oslo_messaging.get_rpc_transport(own, url=url)
