"""The cost of more of something: members, servers, backlog, topics, subscriptions, connections."""
