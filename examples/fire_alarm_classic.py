"""A fire alarm in the classic API of JMS 1.1: figures 6.17 and 6.18 of "Distributed Systems:
Concepts and Design".

Whoever awaits an alarm has a connection of their own, which must be started before anything is
delivered. The alarm only publishes, and needs no start.

    the alarm is raised
    porter, alarm received: Fire!
    night watch, alarm received: Fire!
"""

import sys

import antiphon


def main(url: str = "embedded:alarms") -> None:
    factory = antiphon.TopicConnectionFactory(url)
    alarms = antiphon.Topic("Alarms")
    with AlarmConsumer(factory, alarms) as porter, AlarmConsumer(factory, alarms) as night_watch:
        raise_alarm(factory, alarms)
        print("the alarm is raised")
        print("porter, alarm received:", porter.wait_for_alarm())
        print("night watch, alarm received:", night_watch.wait_for_alarm())


def raise_alarm(factory: antiphon.TopicConnectionFactory, topic: antiphon.Topic) -> None:
    with factory.create_topic_connection() as connection:
        session = connection.create_topic_session(False, antiphon.AUTO_ACKNOWLEDGE)
        publisher = session.create_publisher(topic)
        message = session.create_text_message()
        message.text = "Fire!"
        publisher.publish(message)


class AlarmConsumer:
    """Somebody who is subscribed to alarms."""

    def __init__(self, factory: antiphon.TopicConnectionFactory, topic: antiphon.Topic) -> None:
        self._connection = factory.create_topic_connection()
        session = self._connection.create_topic_session(False, antiphon.AUTO_ACKNOWLEDGE)
        self._subscriber = session.create_subscriber(topic)
        self._connection.start()

    def wait_for_alarm(self) -> str:
        alarm = self._subscriber.receive()
        assert alarm is not None, "the subscriber was closed"
        return alarm.text

    def __enter__(self) -> "AlarmConsumer":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
