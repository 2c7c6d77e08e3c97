"""HTTP: what a request and an answer are, a table of routes, and the server that all of thence's HTTP goes through."""
