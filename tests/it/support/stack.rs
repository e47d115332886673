//! Entries of a route's stack as lines of YAML that follow `middleware:`.

/// A Retry with one policy, given by the text between its braces.
macro_rules! retry {
    ($policy:literal) => {
        concat!(
            "      - provider: mwl:provider.middleware/mwl/retry/v1\n",
            "        onEntry: { with: { policies: [{ ",
            $policy,
            " }] } }\n"
        )
    };
}

/// After a Retry: it waits as long as the response asks for, if it does.
macro_rules! heeding {
    () => {
        concat!(
            "        onFailure: { with: { delay: \"{{ has(middleware.result.details.retryAfter)",
            " ? middleware.result.details.retryAfter : null }}\" } }\n"
        )
    };
}

/// A Timeout.
macro_rules! timeout {
    ($duration:literal) => {
        concat!(
            "      - provider: mwl:provider.middleware/mwl/timeout/v1\n",
            "        onEntry: { with: { duration: ",
            $duration,
            " } }\n"
        )
    };
}

/// A cleanup that posts `input` to `path` of an upstream.
macro_rules! audit {
    ($upstream:literal, $path:literal, $input:literal) => {
        concat!(
            "      - provider: mwl:provider.middleware/mwl/finally/v1\n",
            "        onAlways:\n",
            "          with:\n",
            "            call:\n",
            "              provider: mwl:provider.call/mwl-proxy/http/v1\n",
            "              input: \"{{ ",
            $input,
            " }}\"\n",
            "              with: { upstream: ",
            $upstream,
            ", method: POST, path: \"",
            $path,
            "\" }\n"
        )
    };
}

pub(crate) use {audit, heeding, retry, timeout};
