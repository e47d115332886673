//! Entries of a route's stack, as a configuration says them: lines that follow `middleware:`.

/// A Retry by one policy: what stands between its braces.
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

/// Behind a Retry: it waits as long as the answer asks for, where one does.
macro_rules! heeding {
    () => {
        concat!(
            "        onFailure: { with: { delay: \"{{ has(middleware.result.details.retryAfter)",
            " ? middleware.result.details.retryAfter : null }}\" } }\n"
        )
    };
}

/// A bound.
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

/// A cleanup that posts `input` to an upstream, at `path`.
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
