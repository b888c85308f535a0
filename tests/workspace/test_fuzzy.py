"""Fuzzy file search: the tiers and their order."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from batten.workspace.fuzzy import Finder, Hits, rank
from batten.workspace.root import Root

TIERS = [
    "lib/main.py",  # the name is the query
    "src/main.python",  # the name begins with it
    "src/old_main.py",  # the name holds it
    "main.py/readme",  # the path holds it
    "src/my_application_index.py",  # a subsequence of the name
    "magic/alpha/index.p/yes",  # a subsequence of the path
]


def order(paths: list[str], query: str) -> list[str]:
    return [hit.path for hit in rank(paths, query).hits]


def test_tiers_come_in_their_order_whatever_the_order_of_the_files() -> None:
    assert order(TIERS, "main.py") == TIERS
    assert order(TIERS[::-1], "MAIN.py ") == TIERS


def test_the_whole_path_ranks_above_a_path_that_merely_holds_it() -> None:
    paths = ["deep/src/app.py", "src/app.py.bak", "src/app.py"]
    assert order(paths, "src/app.py") == ["src/app.py", "src/app.py.bak", "deep/src/app.py"]


def test_several_words_match_in_any_order_above_mere_subsequences() -> None:
    paths = ["models/user_test.py", "t/e/s/t u/s/e/r", "other.py"]
    assert order(paths, "test user")[0] == "models/user_test.py"
    assert "other.py" not in order(paths, "test user")


def test_letters_closer_together_rank_higher() -> None:
    assert order(["a_____b_____c", "a_b_c________"], "abc") == ["a_b_c________", "a_____b_____c"]


def test_equal_scores_are_ordered_by_length_then_name() -> None:
    assert order(["b/x.py", "a/x.py", "x.py"], "x.py") == ["x.py", "a/x.py", "b/x.py"]


def test_a_limit_cuts_and_says_so_and_is_clamped() -> None:
    paths = [f"file{number}" for number in range(600)]
    assert rank(paths, "file", 2).truncated
    assert len(rank(paths, "file", 0).hits) == 1
    assert len(rank(paths, "file", 9999).hits) == 500
    assert not rank(paths[:3], "file", 3).truncated


@given(st.text(max_size=20), st.text(max_size=8))
def test_only_files_that_hold_the_letters_in_order_or_all_words_match(
    path: str, query: str
) -> None:
    hits = rank([path], query).hits
    if not hits:
        return
    letters = iter(path.lower())
    wanted = query.strip().lower()
    in_order = all(letter in letters for letter in wanted)
    assert wanted
    assert in_order or all(word in path.lower() for word in wanted.split())


async def test_a_finder_searches_unignored_files_and_keeps_the_listing_a_while(
    tmp_path: Path,
) -> None:
    now = 0.0
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    (tmp_path / "ignored.py").touch()
    (tmp_path / "first.py").touch()
    finder = Finder(clock=lambda: now)
    top = Root(str(tmp_path)).resolve(".")

    async def found() -> list[str]:
        return [hit.path for hit in (await finder.search(top, ".py")).hits]

    assert await found() == ["first.py"]
    (tmp_path / "second.py").touch()
    assert await found() == ["first.py"]
    now = 31.0
    assert await found() == ["first.py", "second.py"]


async def test_an_empty_query_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert await Finder().search(Root(str(tmp_path)).resolve("."), "  ") == Hits((), False)
