"""The names of resource classes and traits, as an index knows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placement_server.store.changes.snapshot import NameRows


@dataclass(frozen=True, slots=True)
class IndexNames:
    """Resource classes and traits by name and by id.

    :param meanings: stays the same object for as long as every id keeps its name. SQLite gives
        the ids of deleted names to new ones, so a text with names in it is right only together
        with this.
    """

    class_ids: Mapping[str, int]
    trait_ids: Mapping[str, int]
    class_names: Mapping[int, str]
    trait_names: Mapping[int, str]
    meanings: object = field(default_factory=object, compare=False)

    @classmethod
    def of(cls, rows: NameRows) -> "IndexNames":
        """Build both directions from the rows of the store."""
        return cls(
            rows.class_ids,
            rows.trait_ids,
            {number: name for name, number in rows.class_ids.items()},
            {number: name for name, number in rows.trait_ids.items()},
        )

    def followed_by(self, rows: NameRows) -> "IndexNames":
        """Return the names that replace these, with the same meanings if none of them is gone."""
        new_names = IndexNames.of(rows)
        are_kept = (
            self.class_names.items() <= new_names.class_names.items()
            and self.trait_names.items() <= new_names.trait_names.items()
        )
        return replace(new_names, meanings=self.meanings) if are_kept else new_names
