"""The page's pictures are those of the tables."""

from scripts.generate_coordination_page import PAGE, page


def test_pictures_on_the_page_are_drawn_from_the_tables() -> None:
    assert PAGE.read_text("utf-8") == page(), "run python -m scripts.generate_coordination_page"
