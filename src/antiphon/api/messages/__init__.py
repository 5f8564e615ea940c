"""Messages, their properties and their destinations, as values. Pure."""
