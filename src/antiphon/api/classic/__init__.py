"""The classic API of JMS 1.1 over contexts: connections, sessions, and their domains."""
