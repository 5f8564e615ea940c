"""`antiphon.sim.simulate`: a user's replicated service under simulated faults."""
