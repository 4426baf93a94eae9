import hashlib, hmac, re, time

def verify(raw_body: bytes, header: str, secrets: list[str], tolerance=300, now=None) -> bool:
    parts = [part.strip().partition("=") for part in (header or "").split(",")]
    t = next((value for name, _, value in parts if name == "t"), "")
    now = time.time() if now is None else now
    if not re.fullmatch("[0-9]{1,12}", t) or abs(now - int(t)) > tolerance:
        return False
    signed = t.encode() + b"." + raw_body
    expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    given = [value.encode() for name, _, value in parts if name == "v1"]
    return any(hmac.compare_digest(v1, one.encode()) for v1 in given for one in expected)
