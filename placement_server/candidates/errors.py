"""The errors of the candidate search.

CandidatesError
 ├── QueryError          the request cannot be answered as it was put: 400
 ├── SearchGaveUp        the search ended before it was through: 503
 │    ├── OutOfTime          the deadline passed
 │    └── TooManyCandidates  there are more than one answer may hold
 └── InconsistentRows    the rows read from the store do not form trees
"""


class CandidatesError(Exception):
    """What the search for allocation candidates may raise."""


class QueryError(CandidatesError):
    """The query is malformed, contradicts itself or uses a name that does not exist.

    :param message: the text for the client, complete.
    :param code: the public error code, or None for the undefined one.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class SearchGaveUp(CandidatesError):
    """The search ended before it was through: there may be candidates that it has not found.

    :ivar found: how many candidates it had found.
    """

    def __init__(self, message: str, found: int) -> None:
        super().__init__(message)
        self.found = found


class OutOfTime(SearchGaveUp):
    """The deadline of the search passed."""

    def __init__(self, seconds: float, found: int) -> None:
        super().__init__(
            f"The search for allocation candidates gave up after {seconds:g} seconds with "
            f"{_candidates(found)} found, and more may exist. Ask with a smaller limit or with "
            "fewer interchangeable groups, or have [placement_server]search_deadline raised.",
            found,
        )


class TooManyCandidates(SearchGaveUp):
    """The search found more candidates than one answer may hold."""

    def __init__(self, most: int, found: int) -> None:
        super().__init__(
            f"The search for allocation candidates gave up with {_candidates(found)} found, "
            f"because an answer holds {most} at most. Ask with a limit of {most} or less, or have "
            "[placement]max_allocation_candidates set to end every search at that many.",
            found,
        )


def _candidates(count: int) -> str:
    return f"{count} candidate{'' if count == 1 else 's'}"


class InconsistentRows(CandidatesError):
    """Rows of one consistent read contradict each other, such as a provider without its root."""
