"""Programs for developers: benchmarks, chaos, experiments, the demo. No other room imports them."""
