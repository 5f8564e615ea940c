"""The decisions of replication: where replicas are started, and what a replica does with a
request."""
