"""Migrations of the schema, for alembic; the first has the revision of OpenStack's schema."""
