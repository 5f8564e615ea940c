"""Words that clients and servers share: destinations, selectors, conflicts, JMS types. Pure."""
