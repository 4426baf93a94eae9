<?php

function verify(string $rawBody, ?string $header, array $secrets, int $tolerance = 300, ?int $now = null): bool
{
    $t = null;
    $given = [];
    foreach (explode(',', $header ?? '') as $part) {
        [$name, $value] = array_pad(explode('=', trim($part), 2), 2, '');
        if ($name === 't') $t ??= $value;
        if ($name === 'v1') $given[] = $value;
    }
    if (!preg_match('/^\d{1,12}$/D', $t ?? '') || abs(($now ?? time()) - (int) $t) > $tolerance) return false;
    foreach ($secrets as $secret) {
        $expected = hash_hmac('sha256', "$t.$rawBody", $secret);
        foreach ($given as $v1) if (hash_equals($expected, $v1)) return true;
    }
    return false;
}
