"""Requests of a run, answered by plain methods: `event.allow()`, `event.answer("…")`."""

from typing import Any

from msgspec.structs import asdict

from batten.client import events
from batten.client.events import Answer, Event
from batten.client.sync.loop_thread import LoopThread
from batten.protocols.maestro.vocabulary import RetryAction


class Request(Event, frozen=True, kw_only=True):
    """A question that the run waits on. It has a deadline, and the first answer counts."""

    request_id: str
    call_id: str
    tool: str
    arguments: Any
    reason: str
    summary: str = ""
    twin: Any
    """The asynchronous request, an event of `batten.client`."""
    loop: LoopThread

    def refuse(self, reason: str = "") -> None:
        """Refuse any class of request."""
        self.loop.call(self.twin.refuse(reason))


class ApprovalAsked(Request, frozen=True, kw_only=True):
    """Whether a tool call may begin."""

    def allow(self) -> None:
        self.loop.call(self.twin.allow())

    def deny(self, reason: str = "") -> None:
        """The model sees the reason; the run goes on."""
        self.loop.call(self.twin.deny(reason))


class QuestionAsked(Request, frozen=True, kw_only=True):
    """A question from the model to a person."""

    @property
    def question(self) -> str:
        return str(self.twin.question)

    @property
    def options(self) -> list[str]:
        """The answers that the model suggests."""
        options: list[str] = self.twin.options
        return options

    def answer(self, answer: Answer) -> None:
        self.loop.call(self.twin.answer(answer))


class ElicitationAsked(Request, frozen=True, kw_only=True):
    """A question from a tool server; its arguments hold the question and the form of the answer."""

    def answer(self, values: dict[str, Any] | str) -> None:
        """Answer with the values by name, or with the only value."""
        self.loop.call(self.twin.answer(values))


class ClientToolCalled(Request, frozen=True, kw_only=True):
    """A call of a client tool that was lent without a function."""

    def answer(self, answer: Answer) -> None:
        self.loop.call(self.twin.answer(answer))

    def fail(self, answer: Answer) -> None:
        """Report that the tool ran and failed; the model sees the answer."""
        self.loop.call(self.twin.fail(answer))


class RetryAsked(Request, frozen=True, kw_only=True):
    """Whether to try a failed call again."""

    def decide(self, action: RetryAction, reason: str = "") -> None:
        """`retry` it, `skip` it and go on, or `abort` the run."""
        self.loop.call(self.twin.decide(action, reason))


_TWINS: dict[type[events.Request], type[Request]] = {
    events.ApprovalAsked: ApprovalAsked,
    events.QuestionAsked: QuestionAsked,
    events.ElicitationAsked: ElicitationAsked,
    events.ClientToolCalled: ClientToolCalled,
    events.RetryAsked: RetryAsked,
}


def request_of(asked: events.Request, loop: LoopThread) -> Request:
    """The request with plain methods."""
    fields = asdict(asked)
    del fields["reply"]
    return _TWINS[type(asked)](**fields, twin=asked, loop=loop)


def event_of(event: Event, loop: LoopThread) -> Event:
    """Any event; only requests differ from those of `batten.client`."""
    return request_of(event, loop) if isinstance(event, events.Request) else event
