"""Both servers, asked the same at the same moment of one clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine

from ..wsgi_client import Answer, Client
from .reference import Reference
from .vocabulary import SentRequest

START = datetime(2040, 1, 1, tzinfo=UTC)
"""Later than either database was made. The clock stands still but between requests."""

_STEP = timedelta(seconds=10)


class Pair:
    """The published server and ours."""

    def __init__(self, reference: Reference, api: Client) -> None:
        self._reference = reference
        self.api = api
        self.moment = START

    def ask(self, sent: SentRequest) -> tuple[Answer, Answer]:
        """Their answer and ours, ten seconds after the last."""
        self.moment += _STEP
        return self.ask_again(sent)

    def ask_again(self, sent: SentRequest) -> tuple[Answer, Answer]:
        """Their answer and ours at the same moment as before."""
        headers = sent.all_headers()
        theirs = self._reference(
            sent.method, sent.url, headers=headers, body=sent.body, moment=self.moment
        )
        length = str(len(sent.body)) if sent.body else ""
        with time_machine.travel(self.moment, tick=False):
            ours = self.api(
                sent.method,
                sent.url,
                raw=sent.body,
                version=None,
                token=None,
                headers=headers,
                environ={
                    "SERVER_NAME": "localhost",
                    "CONTENT_LENGTH": next(
                        (v for name, v in headers.items() if name.lower() == "content-length"),
                        length,
                    ),
                },
            )
        return theirs, ours


@dataclass(frozen=True, slots=True)
class Difference:
    """One request that was answered differently.

    :ivar found: in what, as `comparison.differences` tells it.
    :ivar pair: the servers, in the state after the request.
    """

    sent: SentRequest
    theirs: Answer
    ours: Answer
    found: tuple[str, ...]
    pair: Pair

    @property
    def statuses(self) -> tuple[int, int]:
        return self.theirs.status, self.ours.status

    @property
    def detail_of_ours(self) -> str:
        """The whole text of our error to a read, which is asked for as JSON."""
        given = self.sent.headers.items()
        headers = {name: value for name, value in given if name.lower() != "accept"}
        _, ours = self.asked_both(headers=headers)
        return str(ours.error["detail"]).rstrip()

    def only_in(self, *names: str) -> bool:
        """Whether nothing but these respects differs."""
        return all(sentence.partition(":")[0] in names for sentence in self.found)

    def asked_both(self, **changes: Any) -> tuple[Answer, Answer]:
        """Their and our answer to the request with something changed."""
        return self.pair.ask_again(replace(self.sent, **changes))

    def unknown_to_both(self, url: str) -> bool:
        """Whether neither server has what the newest version has at this path."""
        answers = self.pair.ask_again(SentRequest("GET", url, "1.39"))
        return all(answer.status == 404 for answer in answers)

    def ours_now(self, url: str) -> Any:
        """The JSON that our server has at a path at the newest version."""
        return self.pair.api.get(url).json
