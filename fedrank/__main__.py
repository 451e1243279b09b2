"""``python -m fedrank`` is the command ``fedrank``."""

from fedrank.cli.main import main

if __name__ == "__main__":
    main()
