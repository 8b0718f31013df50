"""The source that needs nothing but a Linux kernel: /sys and /proc, or copies of them.

One module for one thing to find; each has its paths as constants at its top and reads through
`reader.FileTree`. docs/understand/discovery.md says how to add one.
"""
