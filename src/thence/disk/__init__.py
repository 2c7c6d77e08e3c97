"""Files that are there after a crash: whole, owned by one process at a time, on disk before anyone relies on them."""
