"""Request and reply: a question says where the answer is to go, the answer says which question it
is for.

Two programs ask one server. Each has a temporary queue of its own for the answers; it goes away
with the connection.

    alice asked for 6 * 7 and got 42
    alice asked for 8 * 8 and got 64
    bob asked for 3 * 5 and got 15
"""

import sys

import antiphon

Question = tuple[int, int]


def main(url: str = "embedded:multiplying") -> None:
    with antiphon.connect(url) as server:
        serve(server)
        ask("alice", url, [(6, 7), (8, 8)])
        ask("bob", url, [(3, 5)])


def serve(ctx: antiphon.Context) -> None:
    """Answer from now on, on the context's listener thread."""
    answers = ctx.create_producer()

    def answer(question: antiphon.Message) -> None:
        if question.reply_to is not None:
            a, b = question.body
            answers.send(question.reply_to, a * b, correlation_id=question.id)

    ctx.create_consumer(ctx.create_queue("multiply")).set_message_listener(answer)


def ask(name: str, url: str, questions: list[Question]) -> None:
    with antiphon.connect(url) as ctx:
        replies = ctx.create_temporary_queue()
        inbox = ctx.create_consumer(replies)
        producer = ctx.create_producer()
        asked: dict[str | None, Question] = {}
        for question in questions:  # all at once; the answers may come in any order
            message = ctx.create_object_message(question)
            producer.send(ctx.create_queue("multiply"), message, reply_to=replies)
            asked[message.id] = question
        while asked:
            reply = inbox.receive(timeout=10)
            assert reply is not None, "nobody answers"
            a, b = asked.pop(reply.correlation_id)
            print(f"{name} asked for {a} * {b} and got {reply.body}")


if __name__ == "__main__":
    main(*sys.argv[1:])
