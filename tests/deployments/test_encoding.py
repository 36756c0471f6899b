from __future__ import annotations

import pytest

from deployments.encoding import MESSAGE, encode, size_of
from models.errors import TooLong
from models.request import ChatPrompt, GenerateRequest, Prompt, SamplingParams, TextPrompt
from models.text.loading import byte_pipeline


def request(prompt: Prompt, **rest: object) -> GenerateRequest:
    return GenerateRequest(id="r", prompt=prompt, **rest)  # type: ignore[arg-type]


def test_the_size_is_all_that_is_to_be_encoded() -> None:
    sampling = SamplingParams(bad_words=("four",))
    sized = request(TextPrompt("hello", suffix="world"), stop=("\n", "."), sampling=sampling)
    assert size_of(sized) == 5 + 5 + 2 + 4


def test_a_message_counts_even_when_it_is_empty() -> None:
    message = {"role": "user", "content": ""}
    tool = {"function": {"name": "look"}}
    size = size_of(request(ChatPrompt((message, message), tools=(tool,))))
    assert size == 3 * MESSAGE + 2 * len(str(message)) + len(str(tool))


def test_a_prompt_must_leave_room_for_an_answer() -> None:
    text = byte_pipeline()
    assert encode(text, request(TextPrompt("abc")), 4).token_ids == tuple(b"abc")
    with pytest.raises(TooLong) as long:
        encode(text, request(TextPrompt("abcd")), 4)
    assert (long.value.prompt_tokens, long.value.max_context) == (4, 4)
