"""The decisions of the building blocks, without threads, tasks or sockets. Pure."""
