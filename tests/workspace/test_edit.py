"""Edits: exact where possible, looser where it is plain what is meant, never a guess."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batten.contract.errors import NotFound, Refused
from batten.workspace.batch import BatchFailed, Edit, plan
from batten.workspace.edit import Closest, Edited, EditFailed, Failure, replace
from batten.workspace.root import Root

texts = st.text(alphabet="ab \n\t", max_size=30)


def failure(text: str, old: str, new: str = "new") -> tuple[Failure, Closest | None]:
    with pytest.raises(EditFailed) as caught:
        replace(text, old, new)
    return caught.value.kind, caught.value.closest


@given(st.lists(texts, min_size=2, max_size=4), texts.filter(bool), texts)
def test_an_exact_edit_is_str_replace(around: list[str], old: str, new: str) -> None:
    text = old.join(around)
    assume(text.replace(old, new) != text and old != new)
    everywhere = replace(text, old, new, replace_all=True)
    assert everywhere == Edited(text.replace(old, new), text.count(old), "exact")
    if text.find(old) == text.rfind(old):
        assert replace(text, old, new) == Edited(text.replace(old, new), 1, "exact")
    else:
        assert failure(text, old, new) == ("not_unique", None)


@given(texts, texts, texts)
def test_an_edit_ends_in_a_changed_text_or_a_typed_failure(text: str, old: str, new: str) -> None:
    try:
        edited = replace(text, old, new)
    except EditFailed:
        return
    assert edited.text != text


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        (
            "def f(a,  b):   \n    return a\n",
            "def f(a, b):\n    return a",
            "def g():\n    return 1",
            Edited("def g():\n    return 1\n", 1, "whitespace-normalized"),
        ),
        (
            "if x:\n    one()\n    two()\nend\n",
            "one()\ntwo()\n",
            "three()\n",
            Edited("if x:\n    three()\nend\n", 1, "indent-flexible"),
        ),
        (
            "call( a,b )\n",
            "call(a, b)",
            "call(c)",
            Edited("call(c)\n", 1, "line-fuzzy"),
        ),
    ],
)
def test_levels_are_tried_from_the_strictest_on(
    text: str, old: str, new: str, expected: Edited
) -> None:
    assert replace(text, old, new) == expected


def test_a_stricter_match_is_taken_before_a_looser_one_elsewhere() -> None:
    text = "  x = 1\nx  =  1\n"
    assert replace(text, "x = 1\n", "y = 2\n") == Edited("  y = 2\nx  =  1\n", 1, "exact")
    assert replace("x=1\nx  =  1\n", "x = 1", "y") == Edited("x=1\ny\n", 1, "whitespace-normalized")


def test_a_replacement_moves_with_the_indentation_it_was_found_at() -> None:
    text = "class A:\n\tdef f(self):\n\t\treturn 1\n"
    old = "def f(self):\n\treturn 1"
    new = "def f(self):\n\tx = 2\n\n\treturn x"
    assert replace(text, old, new).text == ("class A:\n\tdef f(self):\n\t\tx = 2\n\n\t\treturn x\n")


def test_a_replacement_is_moved_left_where_too_much_indentation_was_given() -> None:
    assert replace("a()\nb()\n", "    a()\n    b()", "    c()").text == "c()\n"


def test_lines_shifted_unevenly_take_the_replacement_as_it_is() -> None:
    text = "  a\n      b\n"
    assert replace(text, "a\n b", "c\n d") == Edited("c\n d\n", 1, "indent-flexible")


def test_two_loose_matches_are_not_chosen_between() -> None:
    text = "  a = 1\n    a = 1\n"
    assert failure(text, "a  =  1") == ("not_unique", None)
    assert replace(text, "a  =  1", "b", replace_all=True) == Edited(
        "  b\n    b\n", 2, "line-fuzzy"
    )


def test_overlapping_loose_matches_are_two() -> None:
    assert failure(" a\n a\n a\n", "a\na") == ("not_unique", None)


def test_blank_text_never_matches_loosely() -> None:
    assert failure("a\n\nb\n", " \t ") == ("not_found", None)


def test_lf_edits_fit_a_crlf_text_and_keep_its_line_ends() -> None:
    text = "one\r\ntwo\r\nthree\r\n"
    assert replace(text, "one\ntwo", "1\n2") == Edited("1\r\n2\r\nthree\r\n", 1, "exact")
    assert replace(text, " two\n", "2\n").text == "one\r\n2\r\nthree\r\n"
    assert replace(text, " two", "2").text == "one\r\n2\r\nthree\r\n"


def test_a_final_newline_too_many_still_fits_the_end_of_the_text() -> None:
    assert replace("a\nb", "b\n", "c\n") == Edited("a\nc", 1, "whitespace-normalized")


def test_an_empty_search_and_an_edit_without_effect_are_failures() -> None:
    assert failure("text", "") == ("empty", None)
    assert failure("text", "ex", "ex") == ("unchanged", None)


def test_what_is_not_found_names_the_closest_line_with_two_more() -> None:
    text = "import os\n\ndef compute(total, count):\n    value = total\n    return value\n"
    kind, closest = failure(text, "def compute(total, number):\n    pass")
    assert kind == "not_found"
    assert closest == Closest(3, "def compute(total, count):\n    value = total\n    return value")


def test_one_word_is_compared_by_its_longest_common_piece() -> None:
    assert failure("alpha\nconfiguration\n", "configurable") == (
        "not_found",
        Closest(2, "configuration\n"),
    )
    assert failure("alpha\n", "zzqy") == ("not_found", None)


def test_failures_explain_themselves_with_the_path() -> None:
    with pytest.raises(EditFailed) as caught:
        replace("a a", "a", "b")
    assert caught.value.explain("x.py") == (
        "old_string is not unique in x.py (found multiple matches). "
        "Use replace_all: true to replace all, or provide more context."
    )
    with pytest.raises(EditFailed) as caught:
        replace("beta gamma\n", "beta delta", "b")
    assert caught.value.explain("x.py") == (
        "old_string not found in x.py. Closest match near line 1:\nbeta gamma\n"
    )


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("a\n" * 2_500_000, "a\n" * 1000 + "b"),
        (" \n" * 2_500_000, "x\n" * 1000),
        ("ab" * 2_500_000, "ab" * 3000 + "c"),
        ("x y z\n" * 800_000, "x  y q"),
    ],
    ids=["repeated-lines", "blank-lines", "one-line", "near-misses"],
)
def test_five_megabytes_without_a_match_fail_as_quickly_as_they_are_read(
    text: str, old: str
) -> None:
    assert failure(text, old)[0] == "not_found"


def test_a_batch_is_made_in_order_and_later_edits_see_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one \xff\n")
    (tmp_path / "b").write_bytes(b"two\n")
    root = Root(str(tmp_path))
    planned = plan(root, [Edit("a", "one", "1"), Edit("b", "two", "2"), Edit("./a", "1 ", "uno ")])
    assert [(body.path, body.after) for body in planned.bodies] == [
        ("a", b"uno \xff\n"),
        ("b", b"2\n"),
    ]
    assert (tmp_path / "a").read_bytes() == b"one \xff\n"


def test_a_batch_with_one_edit_that_does_not_fit_names_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\n")
    root = Root(str(tmp_path))
    with pytest.raises(BatchFailed) as caught:
        plan(root, [Edit("a", "one", "two"), Edit("a", "one", "three")])
    assert (caught.value.number, caught.value.reason.kind) == (2, "not_found")
    with pytest.raises(NotFound):
        plan(root, [Edit("a", "one", "two"), Edit("missing", "x", "y")])
    with pytest.raises(Refused):
        plan(root, [Edit("a", "one", "two"), Edit("../x", "x", "y")])
