"""Tags of trees are kept while they are true, and while there is room."""

from placement_server.candidates.index.tree_tags import TreeTags

TAG, OTHER = "a" * 32, "b" * 32


def test_a_tag_is_kept_until_its_tree_changes() -> None:
    tags = TreeTags()
    for root_id in (7, 8):
        tags.finish(root_id, tags.begin(root_id), TAG)
    tags.forget([7])
    assert (tags.get(7), tags.get(8)) == (None, TAG)
    tags.clear()
    assert tags.get(8) is None


def test_a_change_while_the_tree_is_read_is_not_missed() -> None:
    tags = TreeTags()
    reading = tags.begin(7)
    tags.forget([7])
    tags.finish(7, reading, TAG)
    assert tags.get(7) is None

    reading = tags.begin(7)
    tags.clear()
    tags.finish(7, reading, TAG)
    assert tags.get(7) is None


def test_a_tree_that_is_read_has_no_tag_yet() -> None:
    tags = TreeTags()
    tags.finish(7, tags.begin(7), TAG)
    tags.begin(7)
    assert tags.get(7) is None


def test_of_two_readers_at_once_the_later_one_counts() -> None:
    tags = TreeTags()
    first, second = tags.begin(7), tags.begin(7)
    tags.finish(7, second, OTHER)
    tags.finish(7, first, TAG)
    assert tags.get(7) == OTHER


def test_the_oldest_tags_make_room() -> None:
    tags = TreeTags(most=10_000)
    for root_id in range(1000):
        tags.finish(root_id, tags.begin(root_id), TAG)
    kept = [root_id for root_id in range(1000) if tags.get(root_id)]
    assert kept == list(range(1000 - len(kept), 1000))
    assert 20 < len(kept) < 100
