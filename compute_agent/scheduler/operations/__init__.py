"""Operations of the life of an instance, each of which may be repeated."""
