"""Tokens that Keystone validated, remembered by this process or in memcached."""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from typing import Any, Final

from keystoneauth1 import access

from compute_agent.programs.kept_values import LastingConditions
from placement_server.conf import InvalidConfiguration

LOG = logging.getLogger(__name__)

_OPTION: Final = "[keystone_authtoken]memcached_servers"


def check_content(data: Any, token: str) -> None:
    """Check that what Keystone said of a token is all that a caller is made from.

    :raises Exception: of any kind: it is not.
    """
    content = access.create(body=data, auth_token=token)
    content.will_expire_soon()
    ",".join([content.user_id, *content.role_names])


class TokenMemory:
    """The cache of the middleware, of which no failure is one of a request.

    A token that cannot be read is one that is not known, so Keystone is asked.

    :param cache: of the middleware.
    :param is_shared: it is in memcached, where others write too.
    """

    def __init__(self, cache: Any, *, is_shared: bool) -> None:
        self._cache = cache
        self._is_shared = is_shared
        self._conditions = LastingConditions()
        # by the first requests, each thread would make connections of its own, and find out by
        # itself that memcached hangs
        is_hidden = "eventlet" not in sys.modules
        if is_hidden:
            # what is below imports it where it is installed, and nobody here uses it
            sys.modules["eventlet"] = None  # type: ignore[assignment]
        try:
            cache.initialize({})
        finally:
            if is_hidden:
                del sys.modules["eventlet"]

    def initialize(self, _environ: Any) -> None:
        """Do nothing: it is made ready when it is made."""

    def get(self, token: str) -> Any:
        """Return what Keystone said of a token; None if that is not known."""
        if not self._is_shared:
            return self._cache.get(token)
        try:
            data = self._cache.get(token)
            if data is not None:
                check_content(data, token)
        except Exception as error:  # noqa: BLE001 - also those of the libraries below
            self._record(f"what it has of a token cannot be read ({type(error).__name__}: {error})")
            return None
        self._record(self._servers_away())
        # of two values the middleware takes the first, as its old versions wrote them
        return data if data is not None and len(data) == 1 else None

    def set(self, token: str, data: Any) -> None:
        """Remember what Keystone said of a token."""
        try:
            self._cache.set(token, data)
        except Exception as error:  # noqa: BLE001 - also those of the libraries below
            self._record(f"it takes no token ({type(error).__name__}: {error})")

    def _record(self, trouble: str) -> None:
        if trouble and self._conditions.is_new("memcached"):
            LOG.warning(
                "memcached (%s): %s. Requests go on; Keystone is asked about tokens that memcached "
                "does not return.",
                *(_OPTION, trouble),
            )
        elif not trouble and self._conditions.is_over("memcached"):
            LOG.info("memcached (%s) is used again.", _OPTION)

    def _servers_away(self) -> str:
        """Return which servers are left out for now: the library itself reports nothing."""
        pool = getattr(getattr(self._cache, "_cache_pool", None), "_pool", None)
        servers = zip(
            getattr(pool, "urls", ()), getattr(pool, "_hosts_deaduntil", ()), strict=False
        )
        now = time.time()
        away = [f"{server} for {until - now:.0f} s" for server, until in servers if until > now]
        return f"it does not answer, and is not asked again: {', '.join(away)}" if away else ""


def check_memcached(own: Any) -> None:
    """Check that memcached can be used where it is configured.

    :param own: group [keystone_authtoken].
    :raises InvalidConfiguration: a library is missing, or an address cannot be read.
    """
    if missing_libraries := _missing_libraries(own):
        # keystonemiddleware looks for them at the first request, and again at each
        raise InvalidConfiguration(
            f"{_OPTION} is set, and the library for it is not installed. Install "
            f"{' and '.join(missing_libraries)} beside placement-server, or remove the option: "
            "each worker then remembers tokens by itself."
        )
    if own.memcached_servers and importlib.util.find_spec("memcache") is not None:
        from memcache import Client

        try:
            Client(own.memcached_servers)
        except ValueError as error:
            raise InvalidConfiguration(
                f"{_OPTION} cannot be read: {error}. Addresses look like 192.0.2.7:11211, "
                "inet6:[2001:db8::7]:11211 or unix:/run/memcached.sock, with commas between them."
            ) from error


def _missing_libraries(own: Any) -> list[str]:
    """Return the packages that keeping tokens in memcached needs and that are not installed."""
    if not own.memcached_servers:
        return []
    has_pool = own.memcache_use_advanced_pool
    # keystonemiddleware has the options of SASL and TLS in newer versions only
    has_sasl = getattr(own, "memcache_sasl_enabled", False)
    has_tls = getattr(own, "memcache_tls_enabled", False)
    libraries = {
        "memcache": ("python-memcached", has_pool or not has_sasl),
        "bmemcached": ("python-binary-memcached", has_sasl or (has_pool and has_tls)),
    }
    return [
        package
        for module, (package, is_needed) in libraries.items()
        if is_needed and importlib.util.find_spec(module) is None
    ]
