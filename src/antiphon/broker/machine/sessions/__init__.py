"""Sessions in the state machine: where a client is attached, its leases, its end. Pure."""
