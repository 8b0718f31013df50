"""Assembly of the WSGI application."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_middleware import cors, http_proxy_to_wsgi

from placement_server.api.routes import Dispatcher
from placement_server.api.services import Services
from placement_server.candidates.evaluator import SearchOptions
from placement_server.candidates.index.follower import IndexFollower
from placement_server.candidates.index.saved.saved_file import SavedFile
from placement_server.candidates.limits import MIB, HeavySearches, SearchMemory
from placement_server.candidates.service import CandidateService
from placement_server.feed.service import ChangeFeed
from placement_server.middleware import authentication, monitoring, telemetry
from placement_server.middleware.login import Login
from placement_server.middleware.observation import Observation
from placement_server.policies.enforcer import Enforcer
from placement_server.store.agent_reports import GatheredReports
from placement_server.store.store import Store
from placement_server.web import fleet, use
from placement_server.web.pages import Pages

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


def build_app(
    conf: cfg.ConfigOpts,
    store: Store | None = None,
    *,
    auth_strategy: str | None = None,
    former_rules: Enforcer | None = None,
) -> WSGIApplication:
    """Return the whole server as one WSGI callable.

    :param store: where the data is; by default the one that `[placement_database]` describes.
    :param auth_strategy: overrides `[api]auth_strategy`.
    :param former_rules: what is in force while the policy file cannot be used.
    :raises placement_server.store.errors.StoreError: the database cannot be reached or has
        another schema.
    :raises placement_server.conf.InvalidConfiguration: the policy file cannot be used, or the
        credentials for Keystone are missing.
    """
    if store is None:
        store = Store.from_conf(conf)
    store.synchronise_standard_names()
    web_path = conf.placement_server.web_path
    services = _services(conf, store, former_rules)
    api = Dispatcher(services, fleet.routes(web_path) if web_path else None)
    return _stack(api, conf, services, auth_strategy or conf.api.auth_strategy)


def _services(conf: cfg.ConfigOpts, store: Store, former_rules: Enforcer | None) -> Services:
    options, own = conf.placement, conf.placement_server
    return Services(
        store=store,
        agent_reports=GatheredReports(store),
        candidates=CandidateService(
            store,
            SearchOptions(
                random.SystemRandom() if options.randomize_allocation_candidates else None,
                options.max_allocation_candidates,
                options.allocation_candidates_generation_strategy == "breadth-first",
                own.search_deadline,
            ),
            memory=SearchMemory(own.search_memory * MIB, own.worker_search_memory * MIB),
            heavy=HeavySearches(own.heavy_searches, own.heavy_search_seconds),
            follower=IndexFollower(store, saved_file=_saved_file(own.saved_index_path)),
        ),
        changes=ChangeFeed(store, max_watchers=own.max_watchers),
        enforcer=Enforcer(conf, former_rules),
        incomplete_project_id=options.incomplete_consumer_project_id,
        incomplete_user_id=options.incomplete_consumer_user_id,
        max_body_size=own.max_body_size,
    )


def _saved_file(path: str) -> SavedFile | None:
    return SavedFile(Path(path)) if path else None


def _stack(
    api: WSGIApplication, conf: cfg.ConfigOpts, services: Services, auth_strategy: str
) -> WSGIApplication:
    """Wrap the API in its middleware, from the inside out.

    1. Authentication is next to the API: a caller without a token learns nothing of it, not even
       that a version or a path does not exist.
    2. CORS is outside of authentication, because browsers send preflights without a token, and
       because a 401 needs its headers too or the browser hides it from the page.
    3. The request id is outside of both, so that every answer has one, and with it the Accept
       header, by which even a 401 is rendered; so are the log and the metrics, which see what the
       client gets, whichever layer answers.
    4. The files of the pages and the login on them need no token, and are no requests to the
       API: the log and the metrics do not count them.
    5. Health and metrics paths are outside of the log, or scrapers would fill it.
    6. Proxy headers come first of all: they set client, host and scheme of the request.

    A trace is of the API, its authentication and CORS.
    The fault barrier and the microversion are the API's own first steps: see
    `Dispatcher`.
    """
    store = services.store
    application = authentication.wrap(api, conf, auth_strategy)
    if conf.cors.allowed_origin:
        application = cors.CORS(application, conf)
    application = telemetry.wrap(application, conf, store)
    application = Observation(application)
    if web_path := conf.placement_server.web_path:
        cloud_name = conf.placement_server.cloud_name
        reads = [fleet.NAME, use.NAME]
        application = Pages(application, web_path, reads, auth_strategy, cloud_name)
        application = use.UseSampler(application, store)
        if auth_strategy == "keystone":
            application = Login(application, web_path, conf)
    application = monitoring.wrap(application, conf, store, services.candidates.follower)
    if conf.oslo_middleware.enable_proxy_headers_parsing:
        application = http_proxy_to_wsgi.HTTPProxyToWSGI(application, conf)
    return application
