"""A durable, ordered log with one cursor for each destination: what was acknowledged stands here until it is delivered.

Records lie in partitions, one append-only file each, so that what is done with is given back to the file system by
deleting whole files. docs/journal.md explains the format and the order in which things are written.
"""
