"""The composition root: the only place where the packages of thence meet.

Settings, the state directory, the order in which things start and stop, health, metrics, logs and the HTTP server.
"""
