"""The command `retrystorm`, also as `python -m mc`: signals first, then the slow imports."""

import os
import signal


def main() -> None:
    """Run the command; a signal ends it with one line, until it has something to finish."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has them ignored
            signal.signal(number, _end)
    from mc import cli

    cli.main()


def _end(signum: int, frame: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
