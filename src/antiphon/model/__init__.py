"""Words that clients and servers share: destinations, selectors, conflict relations, JMS types. Pure."""
