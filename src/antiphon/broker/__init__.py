"""The messaging server on the log. `machine` applies entries, on every server alike; `home` serves
one server's clients, and `dispatch` delivers to them."""
