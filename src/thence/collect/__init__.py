"""The collector: events come in over HTTP, are checked, and are on disk before the answer."""
