"""What developers run: benchmarks, chaos, experiments, the demo. Nothing else imports it."""
