"""Validation of tokens by Keystone, and the credentials that the server needs for it."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import webob.exc
from keystoneauth1 import exceptions, loading
from keystoneauth1.loading import session as session_loading
from keystonemiddleware import auth_token
from keystonemiddleware.auth_token import _exceptions as validation_errors
from oslo_config import cfg

from compute_agent.bounded_http.session import BoundedSession
from compute_agent.programs.kept_values import LastingConditions
from placement_server import errors
from placement_server.api.request import REQUEST_ID_KEY, TAKE_TURN_KEY, TURN_KEY
from placement_server.conf import InvalidConfiguration
from placement_server.middleware.token_memory import (
    TokenMemory,
    check_content,
    check_memcached,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOG = logging.getLogger(__name__)

GROUP: Final = "keystone_authtoken"
_SUBJECT: Final = "validation of tokens"

PUBLIC: Final = ("/", "")
"""The version document, with and without the slash of the mount point."""

_PATIENCE: Final = 3
"""Seconds that Keystone has to answer when the server starts."""

_ATTEMPTS: Final = 3
"""Seconds that Keystone has to answer when a token is validated: so many times
`http_connect_timeout`, which bounds one attempt."""

_MOST_VALIDATIONS: Final = 32
"""Validations by one process at a time; more wait, within their own time."""

_FORESEEN: Final = (
    exceptions.ClientException,
    validation_errors.InvalidToken,
    validation_errors.ServiceError,
)
"""Errors of the libraries that are about a token or about Keystone."""

_SYSTEM_ERROR: Final = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

_USUAL: Final = "password"
"""The most common kind of credentials."""

_NEEDED: Final = {
    "password": ("username|user_id", "password"),
    "v3password": ("username|user_id", "password"),
    "v2password": ("username|user_id", "password"),
    "v3applicationcredential": ("application_credential_id|application_credential_name",),
}
"""Options that a kind of credentials needs and does not mark as required. Of names with a bar
between them one is enough."""


class Keystone:
    """Let Keystone validate the token; only the version document needs none.

    :raises InvalidConfiguration: the server has no credentials to ask Keystone with.
    """

    def __init__(self, application: WSGIApplication, conf: cfg.ConfigOpts) -> None:
        check_credentials(conf)
        for name in ("keystonemiddleware.auth_token", "keystoneauth.session"):
            logging.getLogger(name).addFilter(_is_not_repeated)
        self._application = application
        self._protected_application = _Validation(application, {"oslo_config_config": conf})

    def __call__(self, environ: errors.Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO", "") in PUBLIC:
            return self._application(environ, start_response)
        try:
            chunks: Iterable[bytes] = self._protected_application(environ, start_response)
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
    :param outages: end with an answer.
    """

    def __init__(self, identity_server: Any, seconds: float, outages: LastingConditions) -> None:
        self._identity_server = identity_server
        self._outages = outages
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
        environ.get(TURN_KEY, without_turns)()
        try:
            return answer.result(self._seconds)
        except TimeoutError as error:
            answer.cancel()
            raise validation_errors.ServiceError(
                f"Keystone did not answer within {self._seconds:g} s, three times "
                f"[{GROUP}]http_connect_timeout"
            ) from error
        finally:
            environ.get(TAKE_TURN_KEY, without_turns)()

    def _verify(self, token: str, allow_expired: bool) -> Any:
        try:
            data = self._identity_server.verify_token(token, allow_expired=allow_expired)
            check_content(data, token)
        except validation_errors.InvalidToken:
            self._on_answer()
            raise
        except _FORESEEN:
            raise
        except Exception as error:
            raise validation_errors.ServiceError(
                f"Keystone's answer is not understood ({type(error).__name__}: {error})"
            ) from error
        self._on_answer()
        return data

    def _on_answer(self) -> None:
        if self._outages.is_over(_SUBJECT):
            LOG.info("Keystone validates tokens again.")


class _Validation(auth_token.AuthProtocol):  # type: ignore[misc]
    """The middleware, with one kind of error for all failures of Keystone."""

    def _create_session(self, **options: Any) -> Any:
        """Return a session without the semaphore of its adapter.

        It waits until the wall clock reaches the time of the request before, also where that is an
        hour ahead because the clock was set back in between.
        """
        session = super()._create_session(session=BoundedSession(), **options)
        request = session.request

        def request_at_once(url: str, method: str, **arguments: Any) -> Any:
            arguments.pop("rate_semaphore", None)
            return request(url, method, **arguments)

        session.request = request_at_once
        return session

    def _create_identity_server(self) -> Any:
        seconds = _ATTEMPTS * float(self._conf.get("http_connect_timeout"))
        self._outages = LastingConditions()
        return _BoundedKeystone(super()._create_identity_server(), seconds, self._outages)

    def process_request(self, request: Any) -> Any:
        self._identity_server.begin(request.environ)
        return super().process_request(request)

    def _token_cache_factory(self) -> TokenMemory:
        is_shared = bool(self._conf.get("memcached_servers"))
        return TokenMemory(super()._token_cache_factory(), is_shared=is_shared)

    def fetch_token(self, token: str, allow_expired: bool = False) -> Any:
        try:
            return super().fetch_token(token, allow_expired=allow_expired)
        except (webob.exc.HTTPServiceUnavailable, exceptions.ClientException) as error:
            failure = error.__context__ or error
        # not where the error is handled: the log would add all that libraries wrap around it
        if self._outages.is_new(_SUBJECT, type(failure).__name__):
            LOG.error(
                "Tokens cannot be validated, so requests are answered with 503: %s. Check that "
                "Keystone runs, and [%s].",
                _reason(failure).rstrip("."),
                GROUP,
            )
        raise _KeystoneUnavailable("The Keystone service is temporarily unavailable.")


def _reason(error: BaseException) -> str:
    text = str(error)
    if "rejected authorization" in text:
        return (
            f"Keystone refuses the user of [{GROUP}] (HTTP 401): its password was changed, or it "
            "has no role in its project any more"
        )
    system_error = _SYSTEM_ERROR.search(text)
    return f"Keystone does not answer: {system_error[1].strip()}" if system_error else text


_REPEATED: Final = (
    "Unable to validate token",
    "Identity response",
    "Bad response code while validating token",
    # each try of a connection
    "Failure: %(e)s",
    # each worker's own memory is what this server is meant to have without memcached
    "Using the in-process token cache",
)
"""Beginnings of what the libraries log for each request of an outage, which is logged once."""


def _is_not_repeated(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_REPEATED)


def without_turns() -> None:
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
    check_memcached(conf[GROUP])
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


def check_at_start(conf: cfg.ConfigOpts) -> None:
    """Ask Keystone for a token; log a warning if it does not answer within three seconds.

    :raises InvalidConfiguration: the credentials are not there, or Keystone refuses them.
    """
    check_credentials(conf)
    url = auth_url(conf)
    if not url:
        # Some kinds of credentials have no URL.
        return
    group = _register_credentials(conf)
    session = new_session(conf, _PATIENCE)
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


def auth_url(conf: cfg.ConfigOpts) -> str | None:
    """Return the URL of Keystone, by options that were checked; some credentials have none."""
    return getattr(conf[_register_credentials(conf)], "auth_url", None)


def new_session(conf: cfg.ConfigOpts, seconds: float | None = None) -> Any:
    """Return a session with Keystone.

    :param seconds: that an answer may take; `None`: as the option says.
    """
    own = conf[GROUP]
    return session_loading.Session().load_from_options(
        cert=own.certfile,
        key=own.keyfile,
        cacert=own.cafile,
        insecure=own.insecure,
        timeout=seconds or own.http_connect_timeout,
        session=BoundedSession(),
    )


def _register_credentials(conf: cfg.ConfigOpts) -> str:
    """Register the common options of credentials, and return the group that has them."""
    group: str = conf[GROUP].auth_section or GROUP
    conf.register_opts(loading.get_auth_common_conf_options(), group=group)
    return group
