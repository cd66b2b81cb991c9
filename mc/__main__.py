"""`python -m mc` is the command `retrystorm`."""

from mc.cli import main

main()
