"""`python -m cellar`: the command."""

from .engine import main

main()
