"""Validation of tokens by Keystone, and the credentials that the server needs for it."""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import webob.exc
from keystoneauth1 import access, exceptions, loading
from keystoneauth1.loading import session as session_loading
from keystonemiddleware import auth_token
from keystonemiddleware.auth_token import _exceptions as validation_errors
from oslo_config import cfg

from placement_server import errors
from placement_server.api.request import REQUEST_ID_KEY, TAKE_TURN_KEY, TURN_KEY
from placement_server.conf import InvalidConfiguration

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

GROUP: Final = "keystone_authtoken"

#: The version document, with and without the slash of the mount point.
PUBLIC: Final = ("/", "")

#: Seconds that Keystone has to answer when the server starts.
_PATIENCE: Final = 3

#: Seconds that Keystone has to answer when a token is validated: so many times
#: ``http_connect_timeout``, which bounds one attempt, and of an answer that drips only the time
#: between two pieces.
_ATTEMPTS: Final = 3

#: Validations by one process at a time; more wait, within their own time.
_MOST_VALIDATIONS: Final = 32

#: Errors of the libraries that are about a token or about Keystone.
_FORESEEN: Final = (
    exceptions.ClientException,
    validation_errors.InvalidToken,
    validation_errors.ServiceError,
)

_SYSTEM_ERROR: Final = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

#: The most common kind of credentials.
_USUAL: Final = "password"

#: Options that a kind of credentials needs and does not mark as required. Of names with a bar
#: between them one is enough.
_NEEDED: Final = {
    "password": ("username|user_id", "password"),
    "v3password": ("username|user_id", "password"),
    "v2password": ("username|user_id", "password"),
    "v3applicationcredential": ("application_credential_id|application_credential_name",),
}


class Keystone:
    """Let Keystone validate the token; only the version document needs none.

    :raises InvalidConfiguration: the server has no credentials to ask Keystone with.
    """

    def __init__(self, application: WSGIApplication, conf: cfg.ConfigOpts) -> None:
        check_credentials(conf)
        self._application = application
        self._protected = _Validation(application, {"oslo_config_config": conf})

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "") in PUBLIC:
            return self._application(environ, start_response)
        try:
            chunks: Iterable[bytes] = self._protected(environ, start_response)
        except _KeystoneUnavailable as error:
            status, headers, body = errors.render(error, environ, None, environ[REQUEST_ID_KEY])
            start_response(status, headers)
            return [body]
        return chunks


class _KeystoneUnavailable(errors.ServiceUnavailable):
    """A token that Keystone could not be asked about."""


class _BoundedKeystone:
    """Keystone as the middleware asks it: in bounded time, its answers checked.

    The middleware remembers an answer before it looks at it, so one that is not understood would
    be an error for as long as it is remembered.

    A request that waits for Keystone has no turn at the application, so that those with known
    tokens do not wait too.

    :param identity_server: asks Keystone.
    """

    def __init__(self, identity_server: Any, seconds: float) -> None:
        self._identity_server = identity_server
        self._seconds = seconds
        self._pool = ThreadPoolExecutor(_MOST_VALIDATIONS, "keystone")
        self._request = threading.local()
        self.invalidate = identity_server.invalidate

    def begin(self, environ: errors.Environ) -> None:
        """Take the tokens that this thread asks about from now on for those of a request."""
        self._request.environ = environ

    @property
    def www_authenticate_uri(self) -> Any:
        return self._identity_server.www_authenticate_uri

    def verify_token(self, token: str, allow_expired: bool = False) -> Any:
        answer = self._pool.submit(self._verify, token, allow_expired)
        environ = self._request.environ
        environ.get(TURN_KEY, _without_turns)()
        try:
            return answer.result(self._seconds)
        except TimeoutError as error:
            answer.cancel()
            raise validation_errors.ServiceError(
                f"Keystone did not answer within {self._seconds:g} s, three times "
                f"[{GROUP}]http_connect_timeout"
            ) from error
        finally:
            environ.get(TAKE_TURN_KEY, _without_turns)()

    def _verify(self, token: str, allow_expired: bool) -> Any:
        try:
            data = self._identity_server.verify_token(token, allow_expired=allow_expired)
            content = access.create(body=data, auth_token=token)
            content.will_expire_soon()
            ",".join([content.user_id, *content.role_names])
        except _FORESEEN:
            raise
        except Exception as error:
            raise validation_errors.ServiceError(
                f"Keystone's answer is not understood ({type(error).__name__}: {error})"
            ) from error
        return data


class _Validation(auth_token.AuthProtocol):  # type: ignore[misc]
    """The middleware, with one kind of error for all failures of Keystone."""

    def _create_identity_server(self) -> Any:
        seconds = _ATTEMPTS * float(self._conf.get("http_connect_timeout"))
        return _BoundedKeystone(super()._create_identity_server(), seconds)

    def process_request(self, request: Any) -> Any:
        self._identity_server.begin(request.environ)
        return super().process_request(request)

    def fetch_token(self, token: str, allow_expired: bool = False) -> Any:
        try:
            return super().fetch_token(token, allow_expired=allow_expired)
        except (webob.exc.HTTPServiceUnavailable, exceptions.ClientException) as error:
            LOG.error(
                "Keystone could not validate a token, so the request is answered with 503. Check "
                "that Keystone runs, and [%s]: %s",
                GROUP,
                error,
            )
            raise _KeystoneUnavailable(
                "The Keystone service is temporarily unavailable."
            ) from error


def _without_turns() -> None:
    """Do nothing, in a server that does not limit how many requests run at a time."""


def check_credentials(conf: cfg.ConfigOpts) -> None:
    """Check that the options of the credentials for Keystone are set, and that they can be used.

    :raises InvalidConfiguration: one is missing or cannot be used.
    """
    group = _register_credentials(conf)
    auth_type = conf[group].auth_type
    try:
        loader = loading.get_plugin_loader(auth_type or _USUAL)
    except exceptions.NoMatchingPlugin as error:
        raise InvalidConfiguration(
            f"[{group}]auth_type is {auth_type}, but no such plugin is installed; see {_USUAL}."
        ) from error
    conf.register_opts(loading.get_auth_plugin_conf_options(loader), group=group)
    seconds = conf[GROUP].http_connect_timeout
    if seconds is None or seconds < 1:
        raise InvalidConfiguration(
            f"[{GROUP}]http_connect_timeout is {'empty' if seconds is None else seconds}, and a "
            "number of seconds from 1 on was expected."
        )
    if lacking := _missing_libraries(conf[GROUP]):
        # keystonemiddleware looks for them at the first request, and again at each
        raise InvalidConfiguration(
            f"[{GROUP}]memcached_servers is set, and the library for it is not installed. Install "
            f"{' and '.join(lacking)} beside placement-server, or remove the option: each "
            "worker then remembers tokens by itself."
        )
    for where, option in ((group, "auth_url"), (GROUP, "www_authenticate_uri")):
        # The first would be in logs, the second in every 401. URLs of Keystone have no other @.
        if "@" in (getattr(conf[where], option, None) or ""):
            raise InvalidConfiguration(
                f"[{where}]{option} has a user or a password in its URL. Take them out: "
                f"the credentials are options of their own, as etc/placement.conf.sample describes."
            )
    needed_options = [
        "auth_type",
        *(option.dest for option in loader.get_options() if option.required),
    ]
    needed_options += _NEEDED.get(auth_type or _USUAL, ())
    missing_options = [
        names.replace("|", " or ")
        for names in needed_options
        if not any(conf[group][name] for name in names.split("|"))
    ]
    if missing_options:
        raise InvalidConfiguration(
            "[api]auth_strategy is keystone, and the server has no credentials to ask Keystone "
            f"about tokens: [{group}] lacks {', '.join(missing_options)}. Set them, as "
            "etc/placement.conf.sample describes."
        )


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


def check_at_start(conf: cfg.ConfigOpts) -> None:
    """Ask Keystone for a token; log a warning if it does not answer within three seconds.

    :raises InvalidConfiguration: the credentials are not there, or Keystone refuses them.
    """
    check_credentials(conf)
    group = _register_credentials(conf)
    url = getattr(conf[group], "auth_url", None)
    if not url:
        # Some kinds of credentials have no URL.
        return
    own = conf[GROUP]
    session = session_loading.Session().load_from_options(
        cert=own.certfile,
        key=own.keyfile,
        cacert=own.cafile,
        insecure=own.insecure,
        timeout=_PATIENCE,
    )
    reason = ""
    try:
        session.get(url, authenticated=False)
        session.get_token(loading.load_auth_from_conf_options(conf, GROUP))
    except exceptions.Unauthorized as error:
        raise InvalidConfiguration(
            f"Keystone at {url} refuses the user of [{group}] (HTTP 401), so no token can be "
            "validated: its name, password, project or a domain is wrong. Correct that, or create "
            "the user."
        ) from error
    except exceptions.ClientException as error:
        system_error = _SYSTEM_ERROR.search(str(error))
        reason = system_error[1].strip() if system_error else str(error)
    if reason:
        # not where the error is handled: the log would add all that libraries wrap around it
        LOG.warning(
            "Keystone does not answer at [%s]auth_url %s: %s. Until it does, requests are answered "
            "with 503. Check the option, and that Keystone runs.",
            group,
            url,
            reason,
        )


def _register_credentials(conf: cfg.ConfigOpts) -> str:
    """Register the common options of credentials, and return the group that has them."""
    group: str = conf[GROUP].auth_section or GROUP
    conf.register_opts(loading.get_auth_common_conf_options(), group=group)
    return group
