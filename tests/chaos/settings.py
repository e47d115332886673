"""The configuration under which the proxy runs."""


def entry(name, **phases):
    """A middleware entry."""
    return {"provider": f"mwl:provider.middleware/mwl/{name}/v1", **phases}


def bounded(duration):
    """A Timeout."""
    return entry("timeout", onEntry={"with": {"duration": duration}})


CODES = ["Unavailable", "Throttled", "ConnectionFailed", "ConnectionClosed"]
RETRY = entry(
    "retry",
    onEntry={
        "with": {
            "policies": [
                {
                    "match": {"codes": [f"Provider.Call.Http.{code}" for code in CODES]},
                    "attempts": 2,
                    "backoff": {"initial": "PT0.02S", "rate": 2},
                },
                {"match": {"codes": ["Provider.Middleware.Timeout.Exceeded"]}, "attempts": 1},
            ]
        }
    },
)
RETRIED = [bounded("PT6S"), RETRY, bounded("PT1S")]
AUDIT = entry(
    "finally",
    onAlways={
        "with": {
            "call": {
                "input": "{{ {'result': middleware.result.type} }}",
                "provider": "mwl:provider.call/mwl-proxy/http/v1",
                "with": {
                    "upstream": "audit",
                    "method": "POST",
                    "path": "/audit",
                    "headers": {"x-do-audit": "{{ frame.input.headers['x-do-audit'] }}"},
                },
            }
        }
    },
)


def configuration(ports, certificate, generation):
    """The configuration; a generation differs from the one before."""
    upstream = lambda *names, **more: {
        "endpoints": [f"http://127.0.0.1:{ports[name]}" for name in names],
        "idleTimeout": "PT1S",
        **more,
    }
    route = lambda name, to, stack: {
        "name": name,
        "match": {"pathPrefix": f"/{name}"},
        "upstream": to,
        "middleware": stack,
        "responseHeaders": {"set": {"x-generation": str(generation)}},
    }
    address = lambda name: f"127.0.0.1:{ports[name]}"
    return {
        "listeners": [
            {"address": address("listener")},
            {"address": address("tls"), "tls": {"certificate": str(certificate), "key": str(certificate)}},
        ],
        "admin": {"address": address("admin")},
        "upstreams": {
            "fleet": upstream("one", "two"),
            "moving": upstream("moving"),
            "framed": upstream("framed", protocol="http2", pingInterval="PT1S"),
            "audit": upstream("audit"),
        },
        "routes": [
            route("plain", "fleet", [bounded("PT3S")]),
            route("retried", "fleet", RETRIED),
            route("audited", "fleet", [AUDIT, *RETRIED]),
            route("moving", "moving", RETRIED),
            route("framed", "framed", RETRIED),
        ],
        "log": {"access": {"when": "all"}},
        "tracing": {"otlp": {"endpoint": f"http://{address('collector')}"}},
    }
