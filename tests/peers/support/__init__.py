"""Running stacks in one thread, over a network that a test moves."""
