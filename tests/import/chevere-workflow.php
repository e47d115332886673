<?php

// Jobs with different policies, and one that reads the responses of both.
$workflow = workflow(
    job1: async(new TestActionWorksOnNAttempt(2))
        ->withRetry(
            timeout: 100,
            maxAttempts: 2,
        ),
    job2: async(new TestActionWorksOnNAttempt(3))
        ->withRetry(
            timeout: 100,
            maxAttempts: 3,
        ),
    job3: sync(
        function (int $res1, int $res2) {
            return ['res1' => $res1, 'res2' => $res2];
        },
        res1: response('job1', 'attempt'),
        res2: response('job2', 'attempt'),
    )
);
