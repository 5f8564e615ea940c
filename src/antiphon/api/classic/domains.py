"""The classic API for topics alone, and for queues alone, as JMS 1.0 had it.

Sessions for topics refuse calls for queues with `IllegalStateError`, and those for queues calls for
topics. Otherwise they are those of `api/classic/sessions.py`.
"""

from __future__ import annotations

from antiphon.api.classic.sessions import Connection, ConnectionFactory, Session
from antiphon.api.messages.destinations import Queue, Topic
from antiphon.api.modes import SessionMode


class TopicSession(Session):
    """A session for topics alone: calls for queues raise `IllegalStateError`."""

    _REFUSES = Queue


class TopicConnection(Connection):
    """A connection whose sessions may be for topics alone."""

    def create_topic_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> TopicSession:
        """Return a session for topics alone, as `create_session` does. Raise the errors of that
        call."""
        return self._new_session(TopicSession, transacted, acknowledge_mode)


class TopicConnectionFactory(ConnectionFactory):
    """A connection factory for programs that use topics alone."""

    def create_topic_connection(
        self, user: str | None = None, password: str | None = None
    ) -> TopicConnection:
        """Return a connection, stopped, as `create_connection` does. Raise `SecurityError` for a
        user or a password."""
        return TopicConnection(self, user, password)


class QueueSession(Session):
    """A session for queues alone: calls for topics raise `IllegalStateError`."""

    _REFUSES = Topic


class QueueConnection(Connection):
    """A connection whose sessions may be for queues alone."""

    def create_queue_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> QueueSession:
        """Return a session for queues alone, as `create_session` does. Raise the errors of that
        call."""
        return self._new_session(QueueSession, transacted, acknowledge_mode)


class QueueConnectionFactory(ConnectionFactory):
    """A connection factory for programs that use queues alone."""

    def create_queue_connection(
        self, user: str | None = None, password: str | None = None
    ) -> QueueConnection:
        """Return a connection, stopped, as `create_connection` does. Raise `SecurityError` for a
        user or a password."""
        return QueueConnection(self, user, password)
