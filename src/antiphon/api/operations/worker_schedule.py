"""The schedule of a member with several workers: generic order at one member (P5).

A message may begin when every message before it that conflicts with it is done. So messages that do
not conflict are handled in parallel, those that do in their order, and one that takes forever
blocks only messages that conflict with it. A *barrier* (a view, a change of the relation) begins
when all before it is done, and nothing after it begins before it is done.

Intuition: messages with the same tag and key form a queue. In each queue only the first one that
has not begun can be the next, because a message that blocks it blocks those behind it too. It may
begin if no queue that conflicts with its own has an unfinished message from before it; otherwise it
waits for that queue to move on. So the scheduler looks at a message again only when the queue that
it waits for has changed.

No thread and no clock is in here; the fronts carry out the messages that may begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from antiphon.model.conflicts import ConflictRelation

Class = tuple[str | None, str | None]  # tag and key


class Item:
    """A message, or a barrier, in the schedule."""

    __slots__ = ("barrier", "begun", "content", "finished", "kind", "number", "relation", "retries")

    def __init__(self, number: int, content: Any, kind: Class, barrier: bool) -> None:
        self.number = number  # its place in the order
        self.content = content
        self.kind = kind
        self.barrier = barrier
        self.relation: ConflictRelation | None = None  # from here on
        self.begun = False
        self.finished = False
        self.retries = 0


class _Line:
    """The unfinished messages of one class, or of all classes with one tag, in order."""

    __slots__ = ("_items", "waiting")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self.waiting: dict[Class, None] = {}  # classes whose next message waits for the first

    def add(self, item: Item) -> None:
        self._items.append(item)

    @property
    def first(self) -> Item | None:
        return self._items[0] if self._items else None

    def move_on(self) -> bool:
        """Forget finished messages at the front. Return False if the first one is not finished."""
        if self._items and not self._items[0].finished:
            return False
        while self._items and self._items[0].finished:
            self._items.popleft()
        return True


class Scheduler:
    """The messages of a group that one member has, and which of them may begin."""

    def __init__(self, relation: ConflictRelation) -> None:
        self._numbered = 0
        self._order: deque[Item] = deque()  # from the first one on that is not finished
        self._behind: deque[Item] = deque()  # not admitted: there is a barrier before them
        self._barrier: Item | None = None  # admitted and not finished
        self._unfinished = 0  # of those that were admitted
        self._next: deque[Item] = deque()  # may begin at once
        self._start_over(relation)

    def _start_over(self, relation: ConflictRelation) -> None:
        """Begin with another relation; nothing is unfinished."""
        self._relation = relation
        self._queues: dict[Class, deque[Item]] = {}  # admitted, and not begun
        self._of_class: dict[Class, _Line] = {}
        self._of_tag: dict[str | None, _Line] = {}
        self._candidates: dict[Class, None] = {}  # classes whose next message may begin, perhaps

    @property
    def idle(self) -> bool:
        """Whether everything is handled."""
        return not self._unfinished and not self._behind

    def not_begun(self) -> Iterator[Any]:
        """Yield the contents of messages that have not begun."""
        return (i.content for i in self._order if not i.begun and i.relation is None)

    # -- In -------------------------------------------------------------------------------------

    def add(
        self, content: Any, tag: str | None = None, key: str | None = None, barrier: bool = False
    ) -> None:
        """Put a message, or a barrier, at the end of the order."""
        self._append(Item(self._numbered + 1, content, (tag, key), barrier))

    def change(self, relation: ConflictRelation) -> None:
        """Take another relation, from this place of the order on."""
        item = Item(self._numbered + 1, None, (None, None), barrier=True)
        item.relation = relation
        self._append(item)

    def _append(self, item: Item) -> None:
        self._numbered = item.number
        self._order.append(item)
        self._behind.append(item)
        self._admit()

    def _admit(self) -> None:
        while self._behind and self._barrier is None:
            item = self._behind[0]
            if item.barrier and self._unfinished:
                return
            self._behind.popleft()
            if item.relation is not None:
                self._start_over(item.relation)
                item.finished = True
            elif item.barrier:
                self._unfinished += 1
                self._barrier = item
                self._next.append(item)
            else:
                self._unfinished += 1
                self._enter(item)

    def _enter(self, item: Item) -> None:
        tag, key = item.kind
        item.kind = kind = (tag, key if self._relation.keyed else None)
        queue = self._queues.setdefault(kind, deque())
        queue.append(item)
        if len(queue) == 1:
            self._candidates[kind] = None
        self._of_class.setdefault(kind, _Line()).add(item)
        self._of_tag.setdefault(tag, _Line()).add(item)

    # -- Out ------------------------------------------------------------------------------------

    def start(self) -> Item | None:
        """Begin a message or barrier that may begin now, and return it; None: none may."""
        item = self._next.popleft() if self._next else self._candidate()
        if item is not None:
            item.begun = True
        return item

    def _candidate(self) -> Item | None:
        while self._candidates:
            kind = next(iter(self._candidates))
            queue = self._queues[kind]
            if not self._may_begin(queue[0]):
                del self._candidates[kind]
                continue
            item = queue.popleft()
            if not queue:
                del self._queues[kind], self._candidates[kind]
            return item
        return None

    def _may_begin(self, item: Item) -> bool:
        for line in self._conflicting(item.kind):
            if line.first is not None and line.first.number < item.number:
                line.waiting[item.kind] = None
                return False
        return True

    def _conflicting(self, kind: Class) -> Iterator[_Line]:
        """Yield the lines of messages that conflict with those of this class."""
        tag, key = kind
        for other, all_of_tag in self._of_tag.items():
            if not self._relation.conflict(tag, None, other, None):
                continue
            if not self._relation.keyed or key is None:
                yield all_of_tag
                continue
            for same in ((other, key), (other, None)):
                if (line := self._of_class.get(same)) is not None:
                    yield line

    # -- Done -----------------------------------------------------------------------------------

    def again(self, item: Item) -> None:
        """Have a message handled once more: its listener raised."""
        item.retries += 1
        self._next.append(item)

    def done(self, item: Item) -> list[Any]:
        """Finish a message. Return the contents of all messages that are handled now, together with
        all before them, and were not returned so far."""
        item.finished = True
        self._unfinished -= 1
        if item is self._barrier:
            self._barrier = None
        else:
            self._move_on(self._of_class, item.kind)
            self._move_on(self._of_tag, item.kind[0])
        self._admit()
        prefix = []
        while self._order and self._order[0].finished:
            first = self._order.popleft()
            if first.relation is None:
                prefix.append(first.content)
        return prefix

    def _move_on(self, lines: dict[Any, _Line], name: Any) -> None:
        line = lines[name]
        if line.move_on():
            self._candidates.update((k, None) for k in line.waiting if k in self._queues)
            line.waiting.clear()
            if line.first is None:
                del lines[name]
