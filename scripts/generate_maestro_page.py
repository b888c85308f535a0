"""Writes the message tables in `docs/maestro.md` from the codec."""

from pathlib import Path

from batten.protocols.maestro.tables import placed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "maestro.md"


def main() -> None:
    PAGE.write_text(placed(PAGE.read_text()))


if __name__ == "__main__":
    main()
