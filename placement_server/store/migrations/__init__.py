"""Alembic migrations; the first carries the revision of OpenStack's schema."""
