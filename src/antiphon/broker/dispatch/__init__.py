"""Which packs go to which of one server's consumers, by reference. Pure."""
