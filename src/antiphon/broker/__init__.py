"""The replicated state machine behind the JMS API, and what each server does for its clients."""
