import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createVault, VaultError } from '../../src/platform/process/vault.ts';

const aKey = (id: string) => ({ id, key: randomBytes(32) });
const old = aKey('2025');
const current = aKey('2026');
const vault = createVault({ keys: [current, old] });
const CONTEXT = 'endpoint:1:secret';

describe('a vault', () => {
  it.each(['', 'whsec_abc', 'Grüße 👋', 'x'.repeat(10_000)])('opens what it sealed: %.20s', (plain) => {
    expect(vault.open(vault.seal(plain, CONTEXT), CONTEXT)).toBe(plain);
  });

  it('seals with the first key, differently each time, without revealing the text', () => {
    const sealed = [vault.seal('whsec_abc', CONTEXT), vault.seal('whsec_abc', CONTEXT)];
    expect(sealed[0]).not.toBe(sealed[1]);
    for (const text of sealed) {
      expect(text).toMatch(/^v1\.2026\.[\w-]+$/);
      expect(Buffer.from(text.split('.')[2] ?? '', 'base64url').toString('latin1')).not.toContain('whsec_abc');
    }
  });

  it('opens what an older key sealed', () => {
    const sealed = createVault({ keys: [old] }).seal('whsec_abc', CONTEXT);
    expect(vault.open(sealed, CONTEXT)).toBe('whsec_abc');
  });

  it('opens with every key, by whatever id it is listed', () => {
    const sealed = createVault({ keys: [{ ...old, id: 'k1' }] }).seal('whsec_abc', CONTEXT);
    const both = createVault({
      keys: [
        { ...current, id: 'k1' },
        { ...old, id: 'k2' },
      ],
    });
    expect(both.open(sealed, CONTEXT)).toBe('whsec_abc');
    expect(vault.open(sealed, CONTEXT)).toBe('whsec_abc');
  });

  it.each([
    ['an older key', old],
    ['an older key of the same id', { ...old, id: '2026' }],
    ['the first key by another id', { ...current, id: '2025' }],
  ])('seals again what %s has sealed, and leaves the rest as it is', (_by, key) => {
    const sealed = createVault({ keys: [key] }).seal('whsec_abc', CONTEXT);
    const resealed = vault.reseal(sealed, CONTEXT);
    expect(createVault({ keys: [current] }).open(resealed, CONTEXT)).toBe('whsec_abc');
    expect(resealed).toMatch(/^v1\.2026\./);
    expect(vault.reseal(resealed, CONTEXT)).toBe(resealed);
    expect(() => vault.reseal(sealed, 'endpoint:2:secret')).toThrow(VaultError);
  });

  it('does not open a text in another context or with another key of the same name', () => {
    const sealed = vault.seal('whsec_abc', CONTEXT);
    expect(() => vault.open(sealed, 'endpoint:2:secret')).toThrow(VaultError);
    expect(() => createVault({ keys: [aKey('2026')] }).open(sealed, CONTEXT)).toThrow('altered, belongs elsewhere');
  });

  it('does not open a text altered in any byte', () => {
    const [version, id, text = ''] = vault.seal('whsec_abc', CONTEXT).split('.');
    const bytes = Buffer.from(text, 'base64url');
    for (const at of bytes.keys()) {
      const altered = Buffer.from(bytes);
      altered.writeUInt8(altered.readUInt8(at) ^ 1, at);
      const sealed = `${version}.${id}.${altered.toString('base64url')}`;
      expect(() => vault.open(sealed, CONTEXT)).toThrow(VaultError);
    }
  });

  it.each([
    ['v1.2024.AAAA', 'needs key "2024", which is not configured'],
    ['v2.2026.AAAA', 'unknown format'],
    ['v1.2026.AAAA.AAAA', 'unknown format'],
    ['v1.2026.AAAA', 'too short'],
    ['whsec_abc', 'unknown format'],
    ['', 'unknown format'],
  ])('names the problem of %s', (sealed, message) => {
    expect(() => vault.open(sealed, CONTEXT)).toThrow(message);
  });

  it.each([
    [[], 'at least one key'],
    [[{ id: 'a', key: randomBytes(16) }], '16 bytes; AES-256 needs 32'],
    [[{ id: 'a.b', key: randomBytes(32) }], 'key id "a.b" must be'],
    [[aKey('a'), aKey('a')], 'used twice'],
  ])('refuses bad keys (%#)', (keys, message) => {
    expect(() => createVault({ keys })).toThrow(message);
  });
});
