"""The building blocks for programs with threads."""
