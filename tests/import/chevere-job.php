<?php

use function Chevere\Workflow\run;
use function Chevere\Workflow\sync;
use function Chevere\Workflow\workflow;

$workflow = workflow(
    job1: sync(new UnstableAction())
        ->withRetry(
            timeout: 5000,      // 5 seconds timeout
            maxAttempts: 3,     // Try up to 3 times
            delay: 1000         // Wait 1 second between attempts
        ),
);

$run = run($workflow);
