"""The cost of more members, servers, backlog, topics, subscriptions and connections."""
