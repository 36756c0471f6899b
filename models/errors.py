"""What can go wrong with one request, as types. Raised inside a process, a value over a hop."""

from __future__ import annotations


class EngineError(Exception):
    """A request failed for a reason its caller should be told.

    Survives pickling, so that a replica can hand it to its caller as a value.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(EngineError):
    """The request is wrong; ``param`` names the field to blame, as its caller spells it."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param

    def __reduce__(self) -> tuple[type[Invalid], tuple[str, str | None]]:
        return Invalid, (self.message, self.param)


class TooLong(EngineError):
    """Prompt and answer cannot fit: both counts are in tokens."""

    def __init__(self, prompt_tokens: int, max_context: int) -> None:
        super().__init__(
            f"This model's maximum context length is {max_context} tokens. "
            f"However, your messages resulted in {prompt_tokens} tokens. "
            "Please reduce the length of the messages."
        )
        self.prompt_tokens = prompt_tokens
        self.max_context = max_context

    def __reduce__(self) -> tuple[type[TooLong], tuple[int, int]]:
        return TooLong, (self.prompt_tokens, self.max_context)


class Busy(EngineError):
    """No room now; ``retry_after`` is the expected wait in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[Busy], tuple[str, float]]:
        return Busy, (self.message, self.retry_after)


class TimedOut(EngineError):
    """The request's own timeout was over before its first token."""

    def __init__(self) -> None:
        super().__init__("The request's timeout was over before its answer began.")

    def __reduce__(self) -> tuple[type[TimedOut], tuple[()]]:
        return TimedOut, ()


class Failed(EngineError):
    """The engine or the model failed; the message keeps the cause's own words."""


class Closed(Failed):
    """The engine was closed, before it took the request or meanwhile."""

    def __init__(self) -> None:
        super().__init__("The engine was closed.")

    def __reduce__(self) -> tuple[type[Closed], tuple[()]]:
        return Closed, ()
