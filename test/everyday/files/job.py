"""A batch job: it works on one item after the other and, when it is asked to stop, ends after
the one that it has begun. An item takes as many seconds as the argument says."""
import signal
import sys
import time

stopping = False


def stop(*_):
    global stopping
    stopping = True


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.2)


if sys.argv[1] != "no-handler":
    signal.signal(signal.SIGTERM, stop)
open("/ready", "w").close()
while not stopping:
    work(100000 if sys.argv[1] == "too-slow" else 2)
