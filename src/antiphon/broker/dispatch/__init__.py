"""Deliveries of one server: packs, by reference, views and other events go to its consumers.
Pure."""
