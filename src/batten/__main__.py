"""`python -m batten`: the command line of the interpreter that is asked."""

from batten.cli import main

if __name__ == "__main__":
    main()
