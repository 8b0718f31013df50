"""The cache file, written while a pass takes in another tree."""

from pathlib import Path

from compute_agent.placement.connection import Clock
from compute_agent.provider_tree import ProviderTree
from compute_agent.report.cache import CacheFile, TreeCache

ROOT = "00000000-0000-0000-0000-000000000001"


def tree(generation: int) -> ProviderTree:
    made = ProviderTree()
    made.new_root("host", ROOT, generation)
    return made


class WatchedTree(ProviderTree):
    """A tree during whose reading something else happens."""

    cache: TreeCache

    def get_provider_uuids(self, *args: object, **kwargs: object) -> list[str]:
        self.cache.store(tree(2), '"new"')
        return super().get_provider_uuids()


def test_a_tree_is_not_stored_with_the_etag_of_the_next_one(tmp_path: Path) -> None:
    watched = WatchedTree()
    watched.new_root("host", ROOT, 1)
    cache = watched.cache = TreeCache(ROOT, watched, etag='"old"')
    file = CacheFile(tmp_path / "cache.json", Clock())
    file.save([cache])
    stored = file.load()[ROOT]
    pairs = {(1, '"old"'), (1, None), (2, '"new"')}
    assert (stored.tree.data(ROOT).generation, stored.etag) in pairs
    file.save([cache])
    stored = file.load()[ROOT]
    assert (stored.tree.data(ROOT).generation, stored.etag) == (2, '"new"')
