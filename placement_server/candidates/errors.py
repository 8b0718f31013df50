"""The errors of the candidate search.

CandidatesError
 ├── QueryError          the request is malformed or contradicts itself: 400
 └── SearchGaveUp        the search ended before its end: 503
      ├── OutOfTime             the deadline passed
      ├── TooManyCandidates     there are more than one answer may hold
      ├── TooMuchMemory         they take more memory than one search may hold
      ├── WorkerOutOfMemory     all searches of this process hold what they may
      ├── TooManyHeavySearches  other long searches run, and there was no place for this one
      └── SearchProcessEnded    the process of the search was killed
"""


class CandidatesError(Exception):
    """An error of the search for allocation candidates."""


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
    """The search ended before its end: there may be candidates that it has not found.

    :cvar retry_after: after how many seconds the same search may succeed; None where that does not
        depend on other searches.
    """

    retry_after: int | None = None


class OutOfTime(SearchGaveUp):
    """The deadline of the search passed."""

    def __init__(self, seconds: float, found_count: int) -> None:
        super().__init__(
            f"The search for allocation candidates gave up after {seconds:g} seconds with "
            f"{_candidates(found_count)} found, and more may exist. Ask with a smaller limit or "
            "with fewer interchangeable groups, or have [placement_server]search_deadline raised."
        )


class TooManyCandidates(SearchGaveUp):
    """The search found more candidates than one answer may hold."""

    def __init__(self, most: int, found_count: int) -> None:
        super().__init__(
            f"The search for allocation candidates gave up with {_candidates(found_count)} found, "
            f"because an answer holds {most} at most. Ask with a limit of {most} or less, or have "
            "[placement]max_allocation_candidates set to end every search at that many."
        )


class TooMuchMemory(SearchGaveUp):
    """The candidates of the search take more memory than one search may hold."""

    def __init__(self, most: int) -> None:
        super().__init__(
            "The search gave up, because its results hold more than "
            f"{_mebibytes(most)} of memory, and more may exist. Ask for something narrower, or for "
            "candidates with a limit, or have [placement_server]search_memory raised."
        )


class WorkerOutOfMemory(SearchGaveUp):
    """All searches of this process together hold what they may."""

    retry_after = 5

    def __init__(self, most: int) -> None:
        super().__init__(
            "The search for allocation candidates gave up, because all such searches of this "
            f"server process, with the answers it is sending, hold {_mebibytes(most)} of memory. "
            "Ask again later, or with a smaller limit; or have "
            "[placement_server]worker_search_memory raised."
        )


class TooManyHeavySearches(SearchGaveUp):
    """Other heavy searches ran until the deadline."""

    retry_after = 5

    def __init__(self, most: int) -> None:
        super().__init__(
            "The search for allocation candidates takes long, and gave up waiting for others that "
            f"do: {most} such search{'' if most == 1 else 'es'} at a time may run in a server "
            "process. Ask again later, or with a smaller limit; or have "
            "[placement_server]heavy_searches raised."
        )


class SearchProcessEnded(SearchGaveUp):
    """The process in which the search ran ended before its answer."""

    retry_after = 5

    def __init__(self) -> None:
        super().__init__(
            "The search gave up, because the process in which it ran ended, killed perhaps for its "
            "memory. The log has what it wrote; ask again, or for something narrower."
        )


def _mebibytes(size: int) -> str:
    return f"{size / (1024 * 1024):g} MiB"


def _candidates(count: int) -> str:
    return f"{count} candidate{'' if count == 1 else 's'}"
