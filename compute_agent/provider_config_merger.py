"""Provider config files over the life of an agent: read, noticed when changed, taken back out.

The files themselves and what they mean for a tree belong to `provider_config`; here is when they
are read, and the memory of what they added before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from compute_agent import errors, provider_config

if TYPE_CHECKING:
    from compute_agent.ledger import Ledger
    from compute_agent.provider_tree import ProviderTree

LOG = logging.getLogger(__name__)

_Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


class ProviderConfigMerger:
    """Puts what the operator's files say into wanted trees. Safe for several threads.

    :param directory: where the files are.
    :param ledger: remembers what was added, so that what leaves the files is taken back.
    """

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self._directory = directory
        self._ledger = ledger
        self._mutex = threading.Lock()
        self._seen: _Fingerprint | None = None
        self._configs = provider_config.ProviderConfigs()

    def load(self) -> None:
        """Read the files.

        :raises InvalidConfiguration: what is wrong with them; the ones read before stay in force.
        """
        with self._mutex:
            self._seen = self._fingerprint()
            self._configs = provider_config.load(self._directory)

    def merge(self, tree: ProviderTree, root_uuids: Sequence[str]) -> list[Exception]:
        """Edit `tree`; return what was wrong with the files, all of it."""
        self._notice_changes()
        raise NotImplementedError(root_uuids, tree)

    def _notice_changes(self) -> None:
        if self._fingerprint() == self._seen:
            return
        try:
            self.load()
        except errors.InvalidConfiguration as error:
            LOG.error("%s The files read before stay in force.", error)
        else:
            LOG.info("The provider config files in %s were read again.", self._directory)

    def _fingerprint(self) -> _Fingerprint:
        found = []
        try:
            for path in sorted(self._directory.glob("*.yaml")):
                stat = path.stat()
                found.append((path.name, stat.st_mtime_ns, stat.st_size))
        except OSError as error:
            # reading them says what is wrong; here it is only told apart from what was before
            return ((str(error), 0, 0),)
        return tuple(found)
