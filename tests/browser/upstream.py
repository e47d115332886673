"""An upstream that follows a script: what a path answers depends on how often it was asked for."""

import http.server
import threading
import time
from collections import Counter


class Upstream:
    """Serves on a thread. `seen` counts requests by their path."""

    def __init__(self):
        self.seen, self.lock = Counter(), threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                path = self.path.split("?")[0]
                with outer.lock:
                    outer.seen[path] += 1
                    number = outer.seen[path]
                status, wait = outer.script(path, number)
                time.sleep(wait)
                body = f"answer {number} of {path}\n".encode()
                self.send_response(status)
                self.send_header("content-type", "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def script(path, number):
        """The status, and how long it takes."""
        if path == "/retried":
            # Twice an error; the third answer takes long enough to be seen on its way.
            return [(503, 0.05), (503, 0.05), (200, 1.5)][(number - 1) % 3]
        if path == "/mixed":
            return (500, 0) if number % 20 <= 10 else (200, 0)
        return 200, 0

    def close(self):
        self.server.shutdown()
        self.server.server_close()
