"""What failed, kept in one SQLite file where an operator can look, search, send again and throw away."""
