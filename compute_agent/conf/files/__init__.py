"""Configuration files: places of options, forms of values, options that nothing reads."""
