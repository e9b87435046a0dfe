"""`python -m fairlead`: the command line, where the `fairlead` script is not on the path."""

from fairlead.cli import main

if __name__ == "__main__":
    main()
