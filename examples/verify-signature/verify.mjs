import { createHmac, timingSafeEqual } from 'node:crypto';

export const verify = (rawBody, header, secrets, tolerance = 300, now = Date.now() / 1000) => {
  const parts = (header ?? '').split(',').map((part) => part.trim());
  const t = parts.find((part) => part.startsWith('t='))?.slice(2) ?? '';
  if (!/^\d{1,12}$/.test(t) || Math.abs(now - Number(t)) > tolerance) return false;
  return secrets.some((secret) => {
    const v1 = createHmac('sha256', secret).update(`${t}.`).update(rawBody).digest('hex');
    const expected = Buffer.from(`v1=${v1}`);
    const given = parts.map((part) => Buffer.from(part));
    return given.some((part) => part.length === expected.length && timingSafeEqual(part, expected));
  });
};
