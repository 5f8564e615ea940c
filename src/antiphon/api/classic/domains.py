"""The classic API for topics alone, and for queues alone, as JMS 1.0 had it.

A session of one of these refuses what belongs to the other with `IllegalStateError`. Otherwise all
is as in `api/classic/sessions.py`.
"""

from __future__ import annotations

from antiphon.api.classic.sessions import Connection, ConnectionFactory, Session
from antiphon.api.messages.destinations import Queue, Topic
from antiphon.api.modes import SessionMode


class TopicSession(Session):
    REFUSES = Queue


class TopicConnection(Connection):
    def create_topic_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> TopicSession:
        return self._new_session(TopicSession, transacted, acknowledge_mode)


class TopicConnectionFactory(ConnectionFactory):
    def create_topic_connection(
        self, user: str | None = None, password: str | None = None
    ) -> TopicConnection:
        return TopicConnection(self, user, password)


class QueueSession(Session):
    REFUSES = Topic


class QueueConnection(Connection):
    def create_queue_session(
        self,
        transacted: bool | SessionMode = False,
        acknowledge_mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE,
    ) -> QueueSession:
        return self._new_session(QueueSession, transacted, acknowledge_mode)


class QueueConnectionFactory(ConnectionFactory):
    def create_queue_connection(
        self, user: str | None = None, password: str | None = None
    ) -> QueueConnection:
        return QueueConnection(self, user, password)
