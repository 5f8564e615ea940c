"""A number of each member that the others can read: the layer that carries it, and the board that
programs write and read. Pure."""
