"""A WSGI application for gunicorn behind the proxy. Logs each request that came whole to the file in `SEEN`."""

import json
import os


def app(environ, start_response):
    length, wanted = 0, environ.get("CONTENT_LENGTH")
    while part := environ["wsgi.input"].read(65536):
        length += len(part)
    seen = environ.get("HTTP_X_REQUEST_ID", "")
    if not wanted or int(wanted) == length:
        line = {
            "id": seen,
            "method": environ["REQUEST_METHOD"],
            "target": environ["RAW_URI"],
            "path": environ["PATH_INFO"],
            "host": environ.get("HTTP_HOST", ""),
            "length": length,
            "status": 200,
            "view": environ.get("HTTP_X_VIEW", ""),
        }
        with open(os.environ["SEEN"], "a") as log:
            log.write(json.dumps(line) + "\n")
    body = f"saw:{seen};".encode("latin-1")
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
