"""The revisions of the schema, and the names of resource classes and traits."""
