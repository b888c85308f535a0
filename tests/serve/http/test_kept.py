"""What a server keeps in memory is bounded by its size."""

from batten.serve.http.kept import Kept, size_of


def test_values_are_kept_up_to_so_many_bytes_and_the_least_used_goes_first() -> None:
    kept: Kept[str, str] = Kept(10_000)
    for name in "abc":
        kept.keep(name, name, 1000)
    assert kept.get("a") == "a"
    kept.keep("d", "d", 1000)
    assert [kept.get(name) for name in "abcd"] == ["a", None, "c", "d"]
    kept.keep("large", "large", 4000)
    assert kept.get("large") == "large"
    assert len(kept) == 1
    assert kept.size <= 10_000


def test_a_value_that_alone_is_too_large_is_not_kept() -> None:
    kept: Kept[str, str] = Kept(10_000)
    kept.keep("a", "a", 100)
    kept.keep("b", "b", 100)
    kept.keep("a", "grown", 10_000)
    assert (kept.get("a"), kept.get("b")) == (None, "b")
    kept.drop("b")
    kept.drop("b")
    assert (len(kept), kept.size) == (0, 0)


def test_many_small_values_are_bounded_too() -> None:
    kept: Kept[int, str] = Kept(1 << 20)
    for number in range(10_000):
        kept.keep(number, "x", size_of("x"))
    assert kept.size <= 1 << 20
    assert 1000 < len(kept) < 2100
