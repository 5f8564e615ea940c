"""The promises, as programs that judge histories: of groups, channels and services. Pure."""
