"""The command `retrystorm`, also as `python -m mc`: signals first, then the slow imports."""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Run the command; a signal ends it with one line, until it has something to finish."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has them ignored
            signal.signal(number, _end)
    from mc import cli

    try:
        cli.main()
    except SystemExit as end:
        if end.code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            # All is said and let go of. To end Python takes threads of libraries that the signal
            # may have left in the middle of something: they could wait for ever, or abort.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(end.code)
        raise


def _end(signum: int, frame: object) -> None:
    os.write(2, b"stopped\n")
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
