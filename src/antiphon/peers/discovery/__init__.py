"""How the processes of a channel find each other, and which of them founds its first view."""
