"""Searches that ask for the extensions of the API."""

from .candidate_world import PATH
from .wsgi_client import Answer, Client

EXTENDED = "placement 1.39, placement-ext 1.0"


def ask(api: Client, query: str, header: str = EXTENDED) -> Answer:
    return api("GET", f"{PATH}?{query}", version=None, headers={"OpenStack-API-Version": header})
