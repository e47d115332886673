<?php

$job = async(new FetchApi())
    ->withRetry(
        timeout: 10000,    // 10 second timeout
        maxAttempts: 3,    // Try 3 times
        delay: 2000        // Wait 2 seconds between attempts
    );

$job = sync(new DatabaseInsert())
    ->withRetry(
        timeout: 5000,
        maxAttempts: 5,
        delay: 500
    );

$job = async(new UploadFile())
    ->withRetry(
        timeout: 30000,    // 30 second timeout for large files
        maxAttempts: 3,
        delay: 1000
    );

$job = async(new PaymentProcessor())
    ->withRetry(
        timeout: 15000,
        maxAttempts: 2,    // Only retry once for payments
        delay: 5000
    );
