"""A WSGI program, for gunicorn. A request of /slow is never done."""
import time


def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(100000)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]
