"""The errors of the candidate search.

CandidatesError
 ├── QueryError          the request cannot be answered as it was put: 400
 ├── SearchGaveUp        the deadline passed before the search was through: 503
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

    :param when: how far it went, such as "after 30 seconds".
    :param found: how many candidates it had found.
    """

    def __init__(self, when: str, found: int) -> None:
        super().__init__(
            f"The search for allocation candidates gave up {when} with {found} candidates found, "
            "and more may exist. Ask with a smaller limit or with fewer interchangeable groups, "
            "or raise the search deadline of the server."
        )
        self.when = when
        self.found = found


class InconsistentRows(CandidatesError):
    """Rows of one consistent read contradict each other, such as a provider without its root."""
