"""What a replica does in each of its roles, and how it comes from one into another. Pure."""
