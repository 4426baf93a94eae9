import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';

/** A DER element with its tag and length. */
const der = (tag: number, ...parts: Buffer[]): Buffer => {
  const content = Buffer.concat(parts);
  const { length } = content;
  const long = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 255];
  return Buffer.concat([Buffer.of(tag, ...(length < 128 ? [length] : long)), content]);
};

const hex = (text: string): Buffer => Buffer.from(text, 'hex');
const ECDSA_SHA256 = hex('300a06082a8648ce3d040302');
const COMMON_NAME = hex('0603550403');
/** Basic constraints: an authority. */
const IS_AUTHORITY = hex('a3133011300f0603551d130101ff040530030101ff');

const nameOf = (name: string): Buffer => der(0x30, der(0x31, der(0x30, COMMON_NAME, der(0x0c, Buffer.from(name)))));
const VALIDITY = der(0x30, der(0x17, Buffer.from('250101000000Z')), der(0x17, Buffer.from('491231235959Z')));

const certificateOf = (nth: number, publicKey: KeyObject, signer: KeyObject): string => {
  const serial = der(0x02, Buffer.of(nth + 1));
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  const version = hex('a003020102');
  const names = [nameOf(`n${nth + 1}`), VALIDITY, nameOf(`n${nth}`)];
  const body = der(0x30, version, serial, ECDSA_SHA256, ...names, spki, ...(nth > 0 ? [IS_AUTHORITY] : []));
  const signature = der(0x03, Buffer.of(0), sign('sha256', body, signer));
  const base64 = der(0x30, body, ECDSA_SHA256, signature).toString('base64');
  return `-----BEGIN CERTIFICATE-----\n${base64.match(/.{1,64}/g)?.join('\n') ?? ''}\n-----END CERTIFICATE-----\n`;
};

const aKey = (): { publicKey: KeyObject; privateKey: KeyObject } =>
  generateKeyPairSync('ec', { namedCurve: 'prime256v1' });

/**
 * A server's key, its certificate, and those that follow it, one for each of these keys. No authority that is trusted has
 * signed them.
 */
export const createChain = (following: KeyObject[], own = aKey()): { key: string; cert: string } => {
  const signer = generateKeyPairSync('ec', { namedCurve: 'secp521r1' });
  const chain = [own.publicKey, ...following].map((key, nth) => certificateOf(nth, key, signer.privateKey));
  return { key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert: chain.join('') };
};

/** So many certificates of P-521, each signed by the next one. 90 take 0.15 s in one step to check. */
export const createLongChain = (length: number): { key: string; cert: string } => {
  const own = aKey();
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'secp521r1' });
  const chain = Array.from({ length }, (_, nth) =>
    certificateOf(nth, nth === 0 ? own.publicKey : publicKey, privateKey),
  );
  return { key: own.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), cert: chain.join('') };
};
