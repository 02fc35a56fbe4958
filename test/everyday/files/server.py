"""A worker: "in-time" takes two seconds to end, "too-slow" more than any grace period, and
"no-handler" leaves SIGTERM as it is. /ready says that it runs."""
import signal
import sys
import time


def stop(*_):
    time.sleep(100000 if sys.argv[1] == "too-slow" else 2)
    sys.exit(0)


if sys.argv[1] != "no-handler":
    signal.signal(signal.SIGTERM, stop)
open("/ready", "w").close()
while True:
    time.sleep(1000)
