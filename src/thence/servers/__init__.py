"""Real servers that thence starts for you: PostgreSQL from a wheel, a Kafka broker for demo and tests."""
