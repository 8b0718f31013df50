"""Merger of provider config files: read at start and after a change, merged in every pass.

The files themselves and their effect on a tree are in `file` and `additions`; here is when they
are read, and the memory of what they added before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from compute_agent import errors
from compute_agent.programs.kept_values import LastingConditions
from compute_agent.provider_config.additions import (
    MergeResult,
    ProviderConfig,
    ProviderConfigException,
    merge,
)

if TYPE_CHECKING:
    from compute_agent.provider_tree import ProviderTree
    from compute_agent.state.ledger import Additions, Ledger


LOG = logging.getLogger(__name__)

_Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


class ProviderConfigMerger(Struct, eq=False):
    """Adds the entries of the operator's files to wanted trees. Safe for several threads.

    :ivar directory: where the files are.
    :ivar ledger: remembers what was added, so that what leaves the files is taken back.
    :ivar amounts_of: provider uuid to the amounts that consumers hold of it, by class.
    """

    directory: Path
    ledger: Ledger
    amounts_of: Callable[[str], Mapping[str, int]] | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _read_fingerprint: _Fingerprint | None = None
    _readings: int = 0
    _configs: tuple[ProviderConfig, ...] = ()
    _conditions: LastingConditions = field(default_factory=LastingConditions)
    _absent: dict[str, frozenset[str]] = {}
    _kept_sentences: dict[str, frozenset[str]] = {}

    def load(self) -> None:
        """Read the files.

        :raises InvalidConfiguration: one is wrong; the ones read before stay in force.
        """
        with self._mutex:
            self._read_fingerprint = self._fingerprint()
            self._configs = load(self.directory)
            # last: a pass that merges the files as they were meanwhile has the number of before
            self._readings += 1

    def refresh(self) -> int:
        """Read the files again if they changed; return how often they have been read."""
        if self._fingerprint() != self._read_fingerprint:
            try:
                self.load()
            except errors.InvalidConfiguration as error:
                LOG.error("%s The files as read before stay in force until then.", error)
            else:
                LOG.info("The provider config files in %s were read again.", self.directory)
        return self._readings

    def merge(self, base: ProviderTree, tree: ProviderTree, root_uuid: str) -> MergeResult:
        """Edit the wanted `tree` of one node by the files as read; what placement has is `base`."""
        result = merge(
            self._configs,
            tree,
            remembered_additions=self.ledger.additions(),
            base=base,
            held_amounts=self.amounts_of,
        )
        self._announce(root_uuid, result)
        return result

    def before_flush(self, result: MergeResult) -> None:
        """Remember what is about to be added besides what was: the flush may do any part of it."""
        remembered_additions = self.ledger.additions()
        union: Additions = dict(remembered_additions)
        for uuid in result.additions.keys() & result.uuids:
            union[uuid] = {
                kind: sorted({*remembered_additions.get(uuid, {}).get(kind, ()), *names})
                for kind, names in result.additions[uuid].items()
            }
        self.ledger.remember_additions(union)

    def after_flush(self, result: MergeResult) -> None:
        """Remember what is there now, and forget what was taken back."""
        others = {u: k for u, k in self.ledger.additions().items() if u not in result.uuids}
        own = {u: k for u, k in result.additions.items() if u in result.uuids}
        self.ledger.remember_additions({**others, **own})

    def _announce(self, root_uuid: str, result: MergeResult) -> None:
        """Log a state once, not in every pass, and again after it was otherwise."""
        with self._mutex:
            self._absent[root_uuid] = frozenset(result.absent_providers)
            self._kept_sentences[root_uuid] = frozenset(result.kept_sentences)
            # a provider may be in another node's tree
            absent = frozenset.intersection(*self._absent.values())
            for identity in self._conditions.new_among("absent", absent):
                LOG.warning(
                    "A provider config file names the provider with %s, which is not in any tree "
                    "of this agent: its additions wait until it is. Correct the entry if it is "
                    "misspelt.",
                    identity,
                )
            kept_sentences = frozenset().union(*self._kept_sentences.values())
            for sentence in self._conditions.new_among("kept", kept_sentences):
                LOG.error("%s.", sentence)

    def _fingerprint(self) -> _Fingerprint:
        file_marks = []
        try:
            for path in sorted(self.directory.glob("*.yaml")):
                stat = path.stat()
                file_marks.append((path.name, stat.st_mtime_ns, stat.st_size))
        except OSError as error:
            # `load` reports it; here it only has to differ from the fingerprint before
            return ((str(error), 0, 0),)
        return tuple(file_marks)


def load(directory: Path) -> tuple[ProviderConfig, ...]:
    """Read every `*.yaml` directly in `directory`, in the order of their names.

    Hidden files are locks and copies of editors.

    :raises ProviderConfigException: a file cannot be read or cannot be right.
    """
    try:
        paths = sorted(
            path
            for path in directory.iterdir()
            if path.name.endswith(".yaml") and not path.name.startswith(".")
        )
    except FileNotFoundError:
        LOG.info("The directory %s does not exist: no provider config files are read.", directory)
        return ()
    except OSError as error:
        raise ProviderConfigException(
            f"The provider config directory {directory} cannot be read: {error.strerror}. Correct "
            "its permissions or [compute]provider_config_location."
        ) from error
    if not paths:
        LOG.info("The directory %s holds no provider config files (*.yaml).", directory)
        return ()
    # loaded only when there are files, since importing parser and validator is slow
    from compute_agent.provider_config import file as provider_config_file

    providers: list[ProviderConfig] = []
    for path in paths:
        providers.extend(provider_config_file.read(path))
    _refuse_duplicates(providers)
    return tuple(providers)


def _refuse_duplicates(providers: Sequence[ProviderConfig]) -> None:
    files_by_identity: dict[str, str] = {}
    for provider in providers:
        other = files_by_identity.get(provider.identification)
        if other is not None:
            raise ProviderConfigException(
                f"{other} and {provider.source_file} both have an entry for the provider with "
                f"{provider.identification}. Keep one of them."
            )
        files_by_identity[provider.identification] = provider.source_file
