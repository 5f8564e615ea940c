"""The replicated, ordered log: elections, replication, membership, time. Pure: others do the IO."""
