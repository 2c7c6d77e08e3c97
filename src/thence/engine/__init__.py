"""One Spark: Java, jars, the session, what executors need, and the check that all of it works.

Nothing here is imported with `thence` itself; importing this package does not import pyspark yet.
"""
