"""Real servers that thence starts for you: PostgreSQL from a wheel, a Kafka broker from locked jars.

They hand out an address. Whoever uses it does not know who started the server, and a server of your own does as well.
"""
