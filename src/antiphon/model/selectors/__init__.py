"""The selector language of JMS: tokens, grammar, evaluation, and an index over many. Pure."""
