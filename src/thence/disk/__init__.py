"""Files that are there after a crash: whole, owned by one process at a time, and forced to disk before anyone relies on them."""
