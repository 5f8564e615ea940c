"""The replicated, ordered log: elections, replication, membership, time. Pure: `driver` carries out
its effects."""
