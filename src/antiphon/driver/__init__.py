"""The driver of a server: carries out the effects of its log and its home, but for the io itself.
Pure: the server that runs, the simulated one and the tests drive the same classes through a narrow
port."""
