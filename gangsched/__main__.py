"""`python -m gangsched` is the `gangsched` command."""

from gangsched.cli.main import main

if __name__ == "__main__":
    main()
