"""Real servers that thence starts for you.

Each is a process of its own under supervision: started with sane settings on the loopback, restarted when it dies,
stopped in order. They hand out an address or a DSN; whoever uses it cannot tell who started the server.
"""
