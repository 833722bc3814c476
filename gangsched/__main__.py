"""The programs `gangsched` and `kubectl-gang`, and `python -m gangsched`."""

from gangsched.imports import collecting_nothing

with collecting_nothing():
    from gangsched.cli.main import main

if __name__ == "__main__":
    main()
