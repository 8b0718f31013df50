"""Transport to the placement of a cloud of clouds.yaml, or of the OS_* variables."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from keystoneauth1 import adapter

from compute_agent import errors, extras
from compute_agent.conf import services
from compute_agent.placement.transports.keystone import (
    KeystoneSession,
    KeystoneTransport,
    SteadySession,
)
from compute_agent.placement.transports.transport import Timeout


def cloud_transport(name: str | None, timeout: Timeout | None = None) -> KeystoneTransport:
    """Return the transport to the placement of a cloud; the cloud is read with the first request.

    :param name: None for the one that the environment names.
    """
    source = f"cloud {name} in clouds.yaml" if name else "the variables OS_*"
    return KeystoneTransport(partial(_adapter, name), timeout, source)


def _adapter(name: str | None) -> Any:
    extras.require("cloud", "A cloud of clouds.yaml or of OS_* variables", "openstack")
    from openstack import config, exceptions

    try:
        session_constructor = cast("type[Any]", partial(KeystoneSession, session=SteadySession()))
        cloud = config.OpenStackConfig(session_constructor=session_constructor).get_one(cloud=name)
        url = cloud.config.get("auth", {}).get("auth_url")
        if url and (fault := services.url_fault(url)):
            raise errors.InvalidConfiguration(f"auth_url of the cloud, or OS_AUTH_URL, {fault}.")
        return adapter.Adapter(
            session=cloud.get_session(),
            service_type="placement",
            interface=cloud.get_interface("placement"),
            region_name=cloud.get_region_name("placement"),
            endpoint_override=cloud.get_endpoint("placement"),
        )
    except exceptions.ConfigException as error:
        raise errors.InvalidConfiguration(
            f"No cloud to ask: {str(error).rstrip('.')}. Use --os-cloud, OS_* variables, or "
            "another option that names placement."
        ) from error
