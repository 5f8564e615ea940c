"""The replicated, ordered log: elections, replication, membership, time. Pure: drivers do the IO."""
