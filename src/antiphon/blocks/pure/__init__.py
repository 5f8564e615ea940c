"""What the building blocks decide, without threads, tasks or sockets. Pure."""
