"""The text layer of stop sequences."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.text.stop import StopMatcher
from tests.models.text.searching import cut, first_match, unsettled


def feed(stops: list[str], pieces: list[str]) -> tuple[list[str], StopMatcher]:
    matcher = StopMatcher(stops)
    return [matcher.push(piece) for piece in pieces], matcher


alphabet = st.sampled_from("abcé\U0001f600")
texts = st.text(alphabet, max_size=40)
stop_lists = st.lists(st.text(alphabet, max_size=6), max_size=6)
cut_lists = st.lists(st.integers(0, 40), max_size=12)


@given(texts, stop_lists, cut_lists)
@example("abcdX", ["cd", "abcde"], [1, 2, 3, 4])
@example("aaab", ["aab", "aa"], [1, 2, 3])
def test_the_emitted_text_is_the_text_up_to_the_first_match(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    outs, matcher = feed(stops, cut(text, cuts))
    emitted = "".join(outs) + matcher.flush()
    match = first_match(text, stops)
    assert emitted == (text if match is None else text[: match[0]])
    assert matcher.stop == (None if match is None else match[1])
    assert matcher.flush() == ""


@given(texts, stop_lists, cut_lists)
def test_exactly_what_may_become_a_stop_is_held(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    matcher = StopMatcher(stops)
    sent = seen = ""
    for piece in cut(text, cuts):
        seen += piece
        sent += matcher.push(piece)
        if first_match(seen, stops) is not None:
            break
        assert matcher.held == unsettled(seen, stops)
        assert sent + matcher.held == seen


@given(texts, stop_lists, cut_lists)
def test_a_match_ends_where_it_completed(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = feed(stops, cut(text, cuts))[1]
    matcher.flush()
    match = first_match(text, stops)
    assert matcher.match_end == (None if match is None else match[0] + len(match[1]))


@given(texts, stop_lists, st.integers(0, 40))
def test_a_match_that_ends_in_unarmed_text_does_not_count(
    text: str, stops: list[str], unarmed: int
) -> None:
    matcher = StopMatcher(stops)
    emitted = matcher.push(text[:unarmed], armed=False) + matcher.push(text[unarmed:])
    emitted += matcher.flush()
    spans = [
        (i, i + len(s), s) for s in stops if s for i in range(len(text)) if text[i:][: len(s)] == s
    ]
    valid = [span for span in spans if span[1] > unarmed]
    assert emitted == (text[: min(valid)[0]] if valid else text)
    assert matcher.stop == (min(valid)[2] if valid else None)


def test_no_prefix_of_a_stop_gets_out_one_character_a_piece() -> None:
    outs, matcher = feed(["</end>"], list("ab</end>cd"))
    assert outs == ["a", "b", "", "", "", "", "", "", "", ""]
    assert matcher.stop == "</end>"


def test_an_abandoned_partial_is_released_as_soon_as_it_is_disproved() -> None:
    outs, matcher = feed(["</end>"], ["a</e", "x", "<", "</e"])
    assert outs == ["a", "</ex", "", "<"]
    assert matcher.held == "</e"


def test_text_that_cannot_become_a_stop_is_sent_at_once() -> None:
    outs, _ = feed(["a very long stop sequence"], ["Hello", ", ", "world"])
    assert outs == ["Hello", ", ", "world"]


def test_a_stop_in_the_middle_of_a_piece_cuts_there() -> None:
    outs, matcher = feed(["STOP"], ["one STOP two"])
    assert (outs, matcher.stop) == (["one "], "STOP")


def test_the_leftmost_match_wins() -> None:
    outs, matcher = feed(["two", "one"], ["0 one two"])
    assert (outs, matcher.stop) == (["0 "], "one")


@pytest.mark.parametrize("stops", [["one", "one two"], ["one two", "one"]])
def test_of_stops_that_start_together_the_first_to_complete_wins(stops: list[str]) -> None:
    outs, matcher = feed(stops, ["0 one two"])
    assert (outs, matcher.stop) == (["0 "], "one")


@pytest.mark.parametrize("pieces", [["abcde"], list("abcde"), ["abcd", "e"]])
def test_a_match_waits_for_a_longer_stop_begun_further_left(pieces: list[str]) -> None:
    outs, matcher = feed(["cd", "abcde"], ["_", *pieces])
    assert ("".join(outs), matcher.stop, matcher.match_end) == ("_", "abcde", 6)


def test_a_match_inside_a_disproved_longer_stop_stands() -> None:
    outs, matcher = feed(["cd", "abcde"], ["_abcd", "x"])
    assert (outs, matcher.stop, matcher.match_end) == (["_", "ab"], "cd", 5)


def test_a_match_that_still_waits_at_the_end_is_found_by_flush() -> None:
    outs, matcher = feed(["cd", "abcde"], ["_abcd"])
    assert (outs, matcher.stop) == (["_"], None)
    assert (matcher.flush(), matcher.stop) == ("ab", "cd")


def test_what_is_held_at_the_end_is_flushed_once() -> None:
    outs, matcher = feed(["</end>"], ["a</e"])
    assert outs == ["a"]
    assert [matcher.flush(), matcher.flush()] == ["</e", ""]
    assert matcher.stop is None


def test_nothing_comes_out_after_the_match() -> None:
    outs, matcher = feed(["."], ["a.b", "c"])
    assert outs == ["a", ""]
    assert (matcher.flush(), matcher.held) == ("", "")


@pytest.mark.parametrize("stops", [[], [""], ["", ""]])
def test_without_stops_nothing_is_held(stops: list[str]) -> None:
    outs, matcher = feed(stops, ["a", "b\n", ""])
    assert (outs, matcher.held) == (["a", "b\n", ""], "")


def test_duplicates_count_once() -> None:
    outs, matcher = feed(["ab", "ab", ""], ["xa", "b"])
    assert (outs, matcher.stop) == (["x", ""], "ab")


def test_a_character_is_compared_whole() -> None:
    outs, matcher = feed(["とう"], list("ありがとう👩‍👧"))
    assert ("".join(outs), matcher.stop) == ("ありが", "とう")


def test_a_text_that_nearly_matches_for_long_is_followed_without_recursion() -> None:
    matcher = StopMatcher(["a" * 20_000 + "b", "a" * 10_000 + "c"])
    assert matcher.push("a" * 25_000) == "a" * 5_000
    assert matcher.push("x") == "a" * 20_000 + "x"


def test_many_stops_and_a_long_text_one_character_a_piece() -> None:
    draw = random.Random(0)
    stops = ["".join(draw.choices("ab", k=40)) for _ in range(64)]
    text = "".join(draw.choices("ab", k=20_000))
    outs, matcher = feed(stops, list(text))
    match = first_match(text, stops)
    assert match is None
    assert "".join(outs) + matcher.flush() == text


def test_the_text_behind_a_stop_is_told() -> None:
    matcher = StopMatcher(["<a>", "x<a>y"])
    assert matcher.push("12x<a") == "12"
    assert matcher.push("> rest") == "x"
    assert (matcher.stop, matcher.rest, matcher.held) == ("<a>", " rest", "")
    flushed = StopMatcher(["b", "abc"])
    assert (flushed.push("ab"), flushed.flush()) == ("", "a")
    assert (flushed.stop, flushed.rest) == ("b", "")
