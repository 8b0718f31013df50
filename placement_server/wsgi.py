"""The WSGI callable for servers that import one: uWSGI, gunicorn, mod_wsgi.

    uwsgi --module placement_server.wsgi:application ...

The configuration is read from `$OS_PLACEMENT_CONFIG_DIR/placement.conf` or the usual places.
Importing this module starts the application. Import it in every process, and do not preload it
before forking: database connections do not survive a fork.
"""

import logging
from typing import TYPE_CHECKING

from compute_agent.programs.module_loading import without_collections

with without_collections():
    from oslo_log import log

    from compute_agent.programs import log_lines
    from placement_server.app import build_app
    from placement_server.conf import InvalidConfiguration, new_config, warn_of_useless
    from placement_server.middleware import keystone
    from placement_server.policies.enforcer import warn_of_file

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


def _start() -> "WSGIApplication":
    conf = new_config()
    log_lines.set_up(conf, "placement", InvalidConfiguration)
    if conf.log_options:
        conf.log_opt_values(log.getLogger(__name__), logging.DEBUG)
    warn_of_useless(conf)
    if conf.api.auth_strategy == "keystone":
        keystone.check_at_start(conf)
    warn_of_file(conf)
    return build_app(conf)


application = _start()
